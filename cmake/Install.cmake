# What a prefix gets: the command, plugins, and a CMake package that out-of-tree plugins are built with.
#
#   bin/tessera   lib/tessera/plugins/<kind>/*.so   include/tessera/sdk/*.h   lib/cmake/tessera/
#
# lib/, whatever GNUInstallDirs would call it: the command looks for plugins beside itself.
include(CMakePackageConfigHelpers)

set(package "lib/cmake/tessera")
set_target_properties(tessera_sdk PROPERTIES EXPORT_NAME sdk)
install(TARGETS tessera tessera_sdk EXPORT tesseraTargets RUNTIME DESTINATION bin COMPONENT command)
install(DIRECTORY core/sdk/include/tessera DESTINATION include COMPONENT sdk)
install(EXPORT tesseraTargets NAMESPACE tessera:: DESTINATION ${package} COMPONENT sdk)

configure_package_config_file(cmake/tesseraConfig.cmake.in "${CMAKE_CURRENT_BINARY_DIR}/tesseraConfig.cmake"
  INSTALL_DESTINATION ${package})
write_basic_package_version_file("${CMAKE_CURRENT_BINARY_DIR}/tesseraConfigVersion.cmake"
  COMPATIBILITY SameMajorVersion)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/tesseraConfig.cmake" "${CMAKE_CURRENT_BINARY_DIR}/tesseraConfigVersion.cmake"
  cmake/TesseraPlugin.cmake cmake/Cuda.cmake cmake/plugin.map DESTINATION ${package} COMPONENT sdk)
