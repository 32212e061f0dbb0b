# megartp_add_header_check(NAME BASE dir HEADERS files...): an object library with one translation unit a header, which includes
# nothing but that header. It builds only when every header compiles alone. Not part of ALL: ctest builds it.
function(megartp_add_header_check target)
  cmake_parse_arguments(ARG "" "BASE" "HEADERS" ${ARGN})
  set(units "")
  foreach(header IN LISTS ARG_HEADERS)
    file(RELATIVE_PATH relative ${ARG_BASE} ${header})
    string(REGEX REPLACE "[^A-Za-z0-9_]" "_" unit ${relative})
    set(unit ${PROJECT_BINARY_DIR}/header_check/${target}/${unit}.cc)
    file(CONFIGURE OUTPUT ${unit} CONTENT "#include \"${header}\"\n" @ONLY)
    list(APPEND units ${unit})
  endforeach()
  add_library(${target} OBJECT EXCLUDE_FROM_ALL ${units})
  # Nothing runs this code, so the optimiser stays out.
  target_compile_options(${target} PRIVATE -O0 -g0)
endfunction()
