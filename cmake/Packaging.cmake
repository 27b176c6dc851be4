# What `cmake --install` adds to the libraries, headers and programs: pkg-config files and a CMake package. Both find
# their prefix from where they lie, so an installed tree may be moved. SPDX-License-Identifier: Apache-2.0
set(TUTTI_NCCL_VERSION 2.30.7)
# An installed cpu build brings its own CUDA runtime; a cuda build has CUDA's inside.
if(TUTTI_DEVICE STREQUAL "cpu")
    set(TUTTI_CUDART_FLAG " -lcudart")
else()
    set(TUTTI_CUDART_FLAG "")
endif()

foreach(name nccl tutti tutti_parallel)
    configure_file(${PROJECT_SOURCE_DIR}/cmake/${name}.pc.in ${PROJECT_BINARY_DIR}/lib/pkgconfig/${name}.pc @ONLY)
    install(FILES ${PROJECT_BINARY_DIR}/lib/pkgconfig/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()

include(CMakePackageConfigHelpers)
configure_file(${PROJECT_SOURCE_DIR}/cmake/tuttiConfig.cmake.in
    ${PROJECT_BINARY_DIR}/lib/cmake/tutti/tuttiConfig.cmake @ONLY)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/lib/cmake/tutti/tuttiConfigVersion.cmake
    VERSION ${PROJECT_VERSION} COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/lib/cmake/tutti/tuttiConfig.cmake
    ${PROJECT_BINARY_DIR}/lib/cmake/tutti/tuttiConfigVersion.cmake
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/tutti)

# Documents lie in share/tutti as in the project's root, so that their links hold; share/doc/tutti is a link to it.
install(FILES LICENSE README.md ARCHITECTURE.md CONTRIBUTING.md CHANGELOG.md DESTINATION share/tutti)
install(DIRECTORY docs DESTINATION share/tutti)
install(DIRECTORY kernels DESTINATION share/tutti FILES_MATCHING PATTERN "*.cuh" PATTERN "*.md"
    PATTERN "*_for_tests.cuh" EXCLUDE)
install(FILES vgpu/include/vgpu/check.h DESTINATION share/tutti/vgpu/include/vgpu)
install(DIRECTORY tests tools bench DESTINATION share/tutti FILES_MATCHING PATTERN README.md)
install(CODE [[
    set(documents "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/share/doc/tutti")
    get_filename_component(folder "${documents}" DIRECTORY)
    file(MAKE_DIRECTORY "${folder}")
    if(IS_DIRECTORY "${documents}" AND NOT IS_SYMLINK "${documents}")
        file(REMOVE_RECURSE "${documents}") # of an older version
    endif()
    file(CREATE_LINK ../tutti "${documents}" SYMBOLIC)
]])
