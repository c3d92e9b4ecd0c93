# SPDX-License-Identifier: Apache-2.0
# Links the package's Python files and the programs to where the extension was built.
file(GLOB files RELATIVE ${FROM} ${FROM}/*.py ${FROM}/*/*.py ${FROM}/py.typed)
file(MAKE_DIRECTORY ${TO})
foreach(file ${files})
  get_filename_component(folder ${TO}/${file} DIRECTORY)
  file(MAKE_DIRECTORY ${folder})
  file(CREATE_LINK ${FROM}/${file} ${TO}/${file} SYMBOLIC)
endforeach()
file(CREATE_LINK ${BIN} ${TO}/bin SYMBOLIC)
