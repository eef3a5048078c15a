# cmake --install: headers, the two libraries, the `lockstep` command, and the package that find_package(Lockstep) finds. What
# needs libtorch is exported apart, so that COMPONENTS core alone works where there is none.
include(CMakePackageConfigHelpers)

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/Lockstep)
set(torch_rooms "")
if(NOT LOCKSTEP_WITH_TORCH)
  set(torch_rooms REGEX "/lockstep/(lockstep\\.h|(tensor|data|models|optim|amp|parallel|checkpoint|train|compat)/.*)$" EXCLUDE)
endif()
install(DIRECTORY lockstep DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h" REGEX "_(test|body)\\.h$" EXCLUDE PATTERN detail EXCLUDE ${torch_rooms})

# What a static library links privately, its consumer links too: a find_dependency() for each such package.
function(lockstep_find_dependencies target result)
  get_target_property(links ${target} LINK_LIBRARIES)
  list(FILTER links INCLUDE REGEX "^[A-Za-z0-9_]+::")
  list(TRANSFORM links REPLACE "::.*" "")
  list(REMOVE_ITEM links lockstep)
  list(REMOVE_DUPLICATES links)
  list(TRANSFORM links REPLACE "(.+)" "find_dependency(\\1)")
  list(JOIN links "\n" links)
  set(${result} "${links}" PARENT_SCOPE)
endfunction()
lockstep_find_dependencies(lockstep_core LOCKSTEP_CORE_DEPENDENCIES)

set_target_properties(lockstep_core PROPERTIES EXPORT_NAME core)
install(TARGETS lockstep_core EXPORT LockstepCore)
install(EXPORT LockstepCore FILE LockstepCoreTargets.cmake NAMESPACE lockstep:: DESTINATION ${package_folder})
if(LOCKSTEP_WITH_TORCH)
  string(REGEX MATCH "^[0-9]+\\.[0-9]+" LOCKSTEP_TORCH_MINOR ${LOCKSTEP_TORCH_VERSION})
  lockstep_find_dependencies(lockstep LOCKSTEP_TORCH_DEPENDENCIES)
  install(TARGETS lockstep EXPORT LockstepTorch)
  install(EXPORT LockstepTorch FILE LockstepTorchTargets.cmake NAMESPACE lockstep:: DESTINATION ${package_folder})
  install(FILES cmake/LockstepTorch.cmake DESTINATION ${package_folder})
endif()

configure_package_config_file(cmake/LockstepConfig.cmake.in LockstepConfig.cmake INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(LockstepConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/LockstepConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/LockstepConfigVersion.cmake
  DESTINATION ${package_folder})
