# What `cmake --install` adds to the libraries, headers and programs: pkg-config files and a CMake package. Both find
# their prefix from where they lie, so an installed tree may be moved. SPDX-License-Identifier: Apache-2.0
set(TUTTI_NCCL_VERSION 2.30.7)
# An installed cpu build brings its own CUDA runtime; a cuda build has CUDA's inside.
if(TUTTI_DEVICE STREQUAL "cpu")
    set(TUTTI_CUDART_FLAG " -lcudart")
else()
    set(TUTTI_CUDART_FLAG "")
endif()

foreach(name nccl tutti)
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
install(FILES LICENSE README.md DESTINATION share/doc/tutti)
