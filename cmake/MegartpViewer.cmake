# megartp_embed_viewer(OUT_VARIABLE DIR): the page of the HTML report, made from DIR/page.html and the files that it includes: as
# build/generated/viewer.html, and as text in the generated source whose name goes to OUT_VARIABLE, for trace/viewer/viewer_page.h.
function(megartp_embed_viewer out dir)
  file(GLOB parts CONFIGURE_DEPENDS ${dir}/*.html ${dir}/*.css ${dir}/*.js)
  set(source ${PROJECT_BINARY_DIR}/generated/viewer_page.gen.cc)
  set(page ${PROJECT_BINARY_DIR}/generated/viewer.html)
  set(script ${PROJECT_SOURCE_DIR}/cmake/write_viewer.cmake)
  add_custom_command(
    OUTPUT ${source} ${page}
    COMMAND ${CMAKE_COMMAND} -DDIR=${dir} -DPAGE=${page} -DSOURCE=${source} -P ${script}
    DEPENDS ${parts} ${script}
    COMMENT "Putting the HTML report's page together"
    VERBATIM)
  set(${out} ${source} PARENT_SCOPE)
endfunction()
