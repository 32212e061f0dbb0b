# Every folder under src that holds *_test.cc gets one test binary: src/graph/*_test.cc -> graph_test; the op families share ops_test.
function(megartp_add_unit_tests)
  include(GoogleTest)
  file(GLOB_RECURSE tests CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/src/*_test.cc)
  set(folders "")
  foreach(test IN LISTS tests)
    get_filename_component(folder ${test} DIRECTORY)
    list(APPEND folders ${folder})
  endforeach()
  list(REMOVE_DUPLICATES folders)
  list(FILTER folders EXCLUDE REGEX "^ops/")
  foreach(folder IN LISTS folders)
    string(REPLACE "/" "_" target ${folder}_test)
    file(GLOB files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${folder}/*_test.cc)
    megartp_add_test_binary(${target} ${files})
  endforeach()
  file(GLOB_RECURSE files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/ops/*_test.cc)
  megartp_add_test_binary(ops_test ${files})
  # Our number formats and our declarations of the driver are compared with the toolkit's where its headers are installed; they
  # are plain C++ on the host.
  find_path(MEGARTP_CUDA_INCLUDE_DIR cuda_fp8.h PATHS /usr/local/cuda/include ENV CUDA_HOME PATH_SUFFIXES include)
  foreach(target base_test backends_cuda_common_test)
    if(MEGARTP_CUDA_INCLUDE_DIR AND TARGET ${target})
      target_include_directories(${target} SYSTEM PRIVATE ${MEGARTP_CUDA_INCLUDE_DIR})
      target_compile_definitions(${target} PRIVATE MEGARTP_HAVE_CUDA_HEADERS=1)
    endif()
  endforeach()
endfunction()

# What `./megartp-dev sanitize` builds of the tests; these do not use megartp_device and do not wait for it.
set(MEGARTP_CORE_TESTS io_test graph_test plan_test backends_cpu_threads_test conformance_test)

# megartp_add_test_binary(NAME files... [COST seconds]): a GoogleTest binary whose cases ctest runs one by one, the costly ones first.
function(megartp_add_test_binary target)
  cmake_parse_arguments(ARG "" "COST" "" ${ARGN})
  add_executable(${target} ${ARG_UNPARSED_ARGUMENTS})
  megartp_configure_test(${target})
  target_link_libraries(${target} PRIVATE megartp_test_support GTest::gtest_main)
  if(NOT target IN_LIST MEGARTP_CORE_TESTS)
    target_link_libraries(${target} PRIVATE megartp_device)
  endif()
  target_precompile_headers(${target} REUSE_FROM megartp_test_support)
  # Most of a test's compile time goes into what all tests instantiate: names in the tests of one folder are unique, so that they can
  # be compiled in one go.
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${MEGARTP_UNITY} UNITY_BUILD_BATCH_SIZE 16)
  set(cost "")
  if(ARG_COST)
    set(cost COST ${ARG_COST})
  endif()
  gtest_discover_tests(${target} DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 600 ${cost})
endfunction()

# What test binaries and megartp_test_support have in common.
function(megartp_configure_test target)
  # The library is what must be fast. This takes g++ a fifth less than -O1, and no more than -O0, which would not see what warnings of
  # uninitialised and dangling values need.
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-Og>)
  target_compile_options(${target} PRIVATE -Wno-dangling-else)  # `if (x) EXPECT_...` is meant as it reads
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    target_compile_options(${target} PRIVATE -Wno-stringop-overflow -Wno-stringop-overread)  # false, as those in CMakeLists.txt
  endif()
  target_include_directories(${target} PRIVATE ${PROJECT_BINARY_DIR}/generated)
  target_link_libraries(${target} PRIVATE megartp megartp_flags GTest::gmock nlohmann_json::nlohmann_json)
  if(TARGET rapidcheck)
    target_link_libraries(${target} PRIVATE rapidcheck)
  endif()
  target_include_directories(${target} SYSTEM PRIVATE ${XXHASH_INCLUDE_DIR})
  target_compile_definitions(${target} PRIVATE MEGARTP_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
endfunction()
