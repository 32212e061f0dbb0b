# megartp_embed_headers(OUT_VARIABLE BASE dir FILES files...): a generated source that holds the files as text, for
# codegen/embedded_headers.h; names are relative to BASE. It is written anew when one of them changes.
function(megartp_embed_headers out)
  cmake_parse_arguments(ARG "" "BASE" "FILES" ${ARGN})
  set(source ${PROJECT_BINARY_DIR}/generated/embedded_headers.gen.cc)
  list(JOIN ARG_FILES "\n" listing)
  set(list_file ${PROJECT_BINARY_DIR}/generated/embedded_headers.txt)
  file(GENERATE OUTPUT ${list_file} CONTENT "${listing}\n")
  add_custom_command(
    OUTPUT ${source}
    COMMAND ${CMAKE_COMMAND} -DOUT=${source} -DBASE=${ARG_BASE} -DLIST=${list_file}
            -P ${PROJECT_SOURCE_DIR}/cmake/write_embedded.cmake
    DEPENDS ${ARG_FILES} ${list_file} ${PROJECT_SOURCE_DIR}/cmake/write_embedded.cmake
    COMMENT "Embedding the device headers"
    VERBATIM)
  set(${out} ${source} PARENT_SCOPE)
endfunction()
