# SPDX-License-Identifier: Apache-2.0
# Debian packages by CPack: a package for each component of the installation.
set(CPACK_GENERATOR DEB)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_COMPONENTS_ALL libmc0 libmc-dev mc-agent mc-master mcctl)
if(MC_PYTHON)
  list(APPEND CPACK_COMPONENTS_ALL python3-mckv)
endif()
# The install scripts see the prefix of the installed system, which the units name.
set(CPACK_SET_DESTDIR ON)
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "the mc maintainers <mc@localhost>")
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR}/packages)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE ${MC_PACKAGE_RELEASE})
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_LIBRARY_OUTPUT_DIRECTORY})  # for the Python modules
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

# Each package has a changelog with the first list of the newest entry.
file(READ ${PROJECT_SOURCE_DIR}/.github/CHANGELOG.md changes)
if(NOT changes MATCHES "\n## [^\n]*\n\n(- [^\n]*\n(  [^\n]*\n|- [^\n]*\n)*)")
  message(FATAL_ERROR "the newest entry of .github/CHANGELOG.md has no list")
endif()
set(changes "${CMAKE_MATCH_1}")
string(REGEX REPLACE "[*`]" "" changes "${changes}")
string(REPLACE "\n  " "\n    " changes "\n${changes}")
string(REPLACE "\n- " "\n  * " changes "${changes}")
string(TIMESTAMP now "%a, %d %b %Y %H:%M:%S +0000" UTC)  # of SOURCE_DATE_EPOCH, if set
set(changelog ${CMAKE_CURRENT_BINARY_DIR}/changelog.Debian)
file(WRITE ${changelog} "mc (${PROJECT_VERSION}-${MC_PACKAGE_RELEASE}) unstable; urgency=medium
${changes}
 -- ${CPACK_PACKAGE_CONTACT}  ${now}
")
execute_process(COMMAND gzip -9nf ${changelog} COMMAND_ERROR_IS_FATAL ANY)

# mc_package(NAME SECTION SUMMARY DESCRIPTION [DEPENDENCY...])
function(mc_package name section summary description)
  string(TOUPPER ${name} key)
  set(CPACK_DEBIAN_${key}_PACKAGE_NAME ${name} PARENT_SCOPE)
  set(CPACK_DEBIAN_${key}_PACKAGE_SECTION ${section} PARENT_SCOPE)
  set(CPACK_DEBIAN_${key}_DESCRIPTION "${summary} of a KV-cache pool for LLM inference\n ${description}" PARENT_SCOPE)
  list(JOIN ARGN ", " depends)
  set(CPACK_DEBIAN_${key}_PACKAGE_DEPENDS "${depends}" PARENT_SCOPE)
  install(FILES ${PROJECT_SOURCE_DIR}/systemd/packages/copyright ${changelog}.gz
    DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/${name} COMPONENT ${name})
endfunction()
# In a container: the readers of sysusers.d and tmpfiles.d without systemd.
set(readers "systemd (>= 252) | systemd-standalone-sysusers" "systemd (>= 252) | systemd-standalone-tmpfiles")
set(same "(= ${PROJECT_VERSION}-${MC_PACKAGE_RELEASE})")
mc_package(libmc0 libs "client libraries" "Inference processes put and get objects with libmc and libmc-transfer.")
mc_package(libmc-dev libdevel "development files" "Headers for C and C++, a CMake package, and files of pkg-config."
  "libmc0 ${same}" libexpected-dev)
mc_package(mc-agent net "agent" "The agent owns the pool of a host and serves processes and other agents."
  ${readers})
mc_package(mc-master net "master" "The master knows which agents of a cluster hold which objects."
  ${readers})
mc_package(mcctl admin "command line" "Shows agents and clusters, resizes segments and moves objects.")
if(MC_PYTHON)
  # The extension modules are made for one version of Python.
  find_package(Python 3.11 REQUIRED COMPONENTS Interpreter)
  set(python ${Python_VERSION_MAJOR}.${Python_VERSION_MINOR})
  math(EXPR next "${Python_VERSION_MINOR} + 1")
  mc_package(python3-mckv python "Python package" "Clients, a proxy, and connectors of vLLM, SGLang and LMCache."
    "python3 (>= ${python})" "python3 (<< ${Python_VERSION_MAJOR}.${next})" "libmc0 ${same}" mc-agent mcctl)
  set(CPACK_DEBIAN_PYTHON3-MCKV_PACKAGE_SUGGESTS mc-master)
endif()
# Libraries that the agent opens where the host has such devices.
set(CPACK_DEBIAN_MC-AGENT_PACKAGE_SUGGESTS "libibverbs1, ibverbs-providers, libfabric1")

# The scripts of the packages with a unit. Debian's helpers keep the administrator's choice of services.
foreach(name mc-agent mc-master)
  string(TOUPPER ${name} key)
  set(scripts ${CMAKE_CURRENT_BINARY_DIR}/${name})
  set(units ${name}.service)
  if(name STREQUAL "mc-agent")
    set(units "mc-agent.socket mc-agent.service")
  endif()
  foreach(script postinst prerm postrm)
    configure_file(${CMAKE_CURRENT_LIST_DIR}/${script}.in ${scripts}/${script} @ONLY
      FILE_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
  endforeach()
  string(REPLACE mc- "" role ${name})
  file(WRITE ${scripts}/conffiles "/etc/mc/${role}.toml\n")
  set(CPACK_DEBIAN_${key}_PACKAGE_CONTROL_EXTRA
    "${scripts}/postinst;${scripts}/prerm;${scripts}/postrm;${scripts}/conffiles")
endforeach()
include(CPack)
