# megartp_add_cubin_check(NAME CUBIN file CONTRACT file [EXPECT rule]): ctest "cubin.NAME" scans a compiled kernel and compares it with
# its contract. Needs neither a toolkit nor a GPU. Every target that compiles kernels registers its cubins here, so that none goes
# unscanned; with EXPECT the comparison must object with that rule (for tests of the scan itself).
function(megartp_add_cubin_check name)
  cmake_parse_arguments(ARG "" "CUBIN;CONTRACT;EXPECT" "" ${ARGN})
  if(NOT ARG_CUBIN OR NOT ARG_CONTRACT OR ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "megartp_add_cubin_check(${name}): expected CUBIN file CONTRACT file [EXPECT rule]")
  endif()
  add_test(NAME cubin.${name} COMMAND megartp_cli verify cubin ${ARG_CUBIN} --contract ${ARG_CONTRACT})
  set_tests_properties(cubin.${name} PROPERTIES LABELS cubin TIMEOUT 120)
  if(ARG_EXPECT)
    set_tests_properties(cubin.${name} PROPERTIES PASS_REGULAR_EXPRESSION "${ARG_EXPECT}: kernel '")
  endif()
endfunction()
