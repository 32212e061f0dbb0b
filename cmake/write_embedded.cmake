# cmake -DOUT=file.cc -DBASE=dir -DLIST=files.txt -P write_embedded.cmake: see MegartpEmbed.cmake.
file(STRINGS ${LIST} files)
set(text "// Generated from the device headers.\n#include \"codegen/embedded_headers.h\"\n\nnamespace megartp::codegen {\nnamespace {\n\n")
string(APPEND text "constexpr SourceHeader kHeaders[] = {\n")
foreach(file IN LISTS files)
  file(RELATIVE_PATH name ${BASE} ${file})
  file(READ ${file} content)
  string(APPEND text "    {\"${name}\",\n     R\"MEGARTP_TEXT(${content})MEGARTP_TEXT\"},\n")
endforeach()
# An array may not be empty.
string(APPEND text "    {\"\", \"\"},\n};\n\n}  // namespace\n\nstd::span<const SourceHeader> embedded_headers() {\n")
string(APPEND text "  return std::span(kHeaders).first(std::size(kHeaders) - 1);\n}\n\n}  // namespace megartp::codegen\n")
file(WRITE ${OUT} "${text}")
