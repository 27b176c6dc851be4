# What every folder's CMakeLists.txt uses, so that it can be a list of facts. SPDX-License-Identifier: Apache-2.0
include(GNUInstallDirs)

# build/<preset>/{bin,lib,include} has the shape of an installed prefix.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
set(TUTTI_TEST_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
set(CMAKE_INSTALL_LIBDIR lib)
set(CMAKE_BUILD_RPATH "\$ORIGIN/../lib")
set(CMAKE_INSTALL_RPATH "\$ORIGIN/../lib;\$ORIGIN")
set(CMAKE_C_STANDARD 17)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

add_compile_options(-fno-omit-frame-pointer)
# Nothing that is built names the folder where it was: texts and debug information say src/..., vgpu/..., as gdb in the
# project's root finds them. The last option that fits counts.
add_compile_options($<$<COMPILE_LANGUAGE:C,CXX,ASM>:-ffile-prefix-map=${PROJECT_SOURCE_DIR}/=>
    $<$<COMPILE_LANGUAGE:C,CXX,ASM>:-ffile-prefix-map=${CMAKE_BINARY_DIR}=build>)
if(TUTTI_SANITIZE)
    add_compile_options(-fsanitize=${TUTTI_SANITIZE} -fno-sanitize-recover=undefined)
    add_link_options(-fsanitize=${TUTTI_SANITIZE})
    add_compile_definitions(TUTTI_CHECKED)
    # Half the time that -O2 -g takes to compile; of debugging information reports need the lines alone.
    set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O1 -g1 -DNDEBUG")
    set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1 -DNDEBUG")
endif()

# Long proofs, of every value, plan or type, run without a sanitizer and under the address sanitizer, which has the undefined
# checks with it. Other sanitizers see as much in the tests of some of these.
set(TUTTI_LONG_PROOFS ON)
if(TUTTI_SANITIZE AND NOT TUTTI_SANITIZE MATCHES "address")
    set(TUTTI_LONG_PROOFS OFF)
endif()

# What code links that calls CUDA: tutti_device is our cudart, or CUDA's own (static). The driver's functions are found
# when they are called (src/exec/cuda/driver.c): nothing needs libcuda.so.1 to be loaded.
add_library(tutti_device INTERFACE)
if(TUTTI_DEVICE STREQUAL "cuda")
    if(NOT CMAKE_CUDA_COMPILER AND EXISTS /usr/local/cuda/bin/nvcc)
        set(CMAKE_CUDA_COMPILER /usr/local/cuda/bin/nvcc)
    endif()
    if(NOT CMAKE_CUDA_ARCHITECTURES AND NOT DEFINED ENV{CUDAARCHS}) # CMake reads the variable
        set(CMAKE_CUDA_ARCHITECTURES 90)
    endif()
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)
    set(CMAKE_CUDA_STANDARD 17)
    # Environment of tests with kernels of their own that wait for other ranks': else CUDA loads a kernel when it is first
    # launched, and may wait for those that run.
    set(TUTTI_KERNELS_LOADED_FIRST CUDA_MODULE_LOADING=EAGER)
    target_link_libraries(tutti_device INTERFACE CUDA::cudart_static)
elseif(TUTTI_DEVICE STREQUAL "cpu")
    target_link_libraries(tutti_device INTERFACE cudart)
else()
    message(FATAL_ERROR "TUTTI_DEVICE is \"${TUTTI_DEVICE}\"; it may be cpu or cuda")
endif()

# Warnings for C code of ours: tutti_warnings(target)
function(tutti_warnings target)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:C>:-Wall -Wextra -Wshadow -Wundef -Wvla
        -Wstrict-prototypes -Wmissing-prototypes -Wconversion -Wno-sign-conversion>
        $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra>)
    if(TUTTI_WERROR)
        target_compile_options(${target} PRIVATE -Werror)
    endif()
    if(TUTTI_SANITIZE) # what follows from the values that variables can have is judged by the plain build
        target_compile_options(${target} PRIVATE -Wno-alloc-size-larger-than -Wno-array-bounds -Wno-format-overflow
            -Wno-format-truncation -Wno-maybe-uninitialized -Wno-nonnull -Wno-restrict -Wno-stringop-overflow
            -Wno-stringop-overread -Wno-stringop-truncation)
    endif()
endfunction()

# The atomic operations of a library's C code are seen by the thread sanitizer of the program that loads it, though the
# library is not compiled for it: tutti_visible_atomics(target)
function(tutti_visible_atomics target)
    target_compile_options(${target} PRIVATE
        "$<$<COMPILE_LANGUAGE:C>:SHELL:-include ${PROJECT_SOURCE_DIR}/cmake/visible_atomics.h>")
endfunction()

# Links header files or folders into build/<preset>/include and installs them: tutti_headers(path...)
function(tutti_headers)
    file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/include)
    foreach(path ${ARGN})
        get_filename_component(name ${path} NAME)
        file(CREATE_LINK ${CMAKE_CURRENT_SOURCE_DIR}/${path} ${CMAKE_BINARY_DIR}/include/${name} SYMBOLIC)
        if(IS_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/${path})
            install(DIRECTORY ${path} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} PATTERN "*.md" EXCLUDE)
        else()
            install(FILES ${path} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
        endif()
    endforeach()
endfunction()

# Registers a command as a ctest test:
#   tutti_add_test(NAME name COMMAND program [argument ...] LABELS unit [TIMEOUT 60] [ENVIRONMENT A=B ...])
# Exit status 0 passes, 77 skips (the last line says why), anything else fails. Tests with long limits start first. `./dev
# test` has two places for each core, and one more: a test takes two, or one if it sleeps most of its time (label
# waits). In the build for real GPUs a test needs one, and has it for itself, with NVLink multicast off, unless
# it has the label nogpu; with the label gpus there is another, name_gpus, on all GPUs there are; with the label mps it
# runs under CUDA's multi-process service.
function(tutti_add_test)
    cmake_parse_arguments(T "" "NAME;TIMEOUT" "COMMAND;LABELS;ENVIRONMENT" ${ARGN})
    if(NOT T_TIMEOUT)
        set(T_TIMEOUT 60)
    endif()
    set(places 2)
    if(waits IN_LIST T_LABELS)
        set(places 1)
    endif()
    if(TUTTI_DEVICE STREQUAL "cuda" AND NOT nogpu IN_LIST T_LABELS)
        tutti_add_gpu_test(${ARGN})
        return()
    endif()
    tutti_is_default(is_default ${T_LABELS})
    if(is_default)
        list(APPEND T_LABELS default)
        set_property(GLOBAL APPEND PROPERTY TUTTI_DEFAULT_COMMANDS ${T_COMMAND})
    endif()
    add_test(NAME ${T_NAME} COMMAND ${T_COMMAND})
    set_tests_properties(${T_NAME} PROPERTIES TIMEOUT ${T_TIMEOUT} COST ${T_TIMEOUT} PROCESSORS ${places}
        SKIP_RETURN_CODE 77 LABELS "${T_LABELS}" ENVIRONMENT "${T_ENVIRONMENT}")
endfunction()

# What tutti_add_test does for tests that need a GPU. None is default.
function(tutti_add_gpu_test)
    cmake_parse_arguments(T "" "NAME;TIMEOUT" "COMMAND;LABELS;ENVIRONMENT" ${ARGN})
    if(NOT T_TIMEOUT)
        set(T_TIMEOUT 60)
    endif()
    list(GET T_COMMAND 0 program)
    if(TARGET ${program})
        list(POP_FRONT T_COMMAND)
        list(PREPEND T_COMMAND $<TARGET_FILE:${program}>)
    endif()
    set(ways one)
    if(mps IN_LIST T_LABELS)
        set(ways mps)
    elseif(gpus IN_LIST T_LABELS)
        set(ways one all)
    endif()
    foreach(way ${ways})
        set(name ${T_NAME})
        if(way STREQUAL "all")
            set(name ${T_NAME}_gpus)
        endif()
        add_test(NAME ${name} COMMAND ${PROJECT_SOURCE_DIR}/tests/support/on_gpu --${way} ${T_COMMAND})
        set_tests_properties(${name} PROPERTIES TIMEOUT ${T_TIMEOUT} COST ${T_TIMEOUT} SKIP_RETURN_CODE 77
            LABELS "${T_LABELS};gpu" ENVIRONMENT "${T_ENVIRONMENT};NCCL_NVLS_ENABLE=0" RESOURCE_LOCK gpu)
    endforeach()
endfunction()

# Whether `./dev test` runs a test of these labels in this build (CONTRIBUTING.md has the rule): tutti_is_default(out label...)
function(tutti_is_default out)
    set(left_out full gpu)
    if(TUTTI_SANITIZE)
        list(APPEND left_out plain install)
    endif()
    if(TUTTI_SANITIZE MATCHES "address|undefined")
        list(APPEND left_out heavy)
    endif()
    set(result TRUE)
    foreach(label ${ARGN})
        if(label IN_LIST left_out)
            set(result FALSE)
        endif()
    endforeach()
    if(TUTTI_SANITIZE MATCHES "thread" AND NOT tsan IN_LIST ARGN)
        set(result FALSE)
    endif()
    set(${out} ${result} PARENT_SCOPE)
endfunction()

# The target default_tests: the libraries, the compiler, for real GPUs three lessons that show that their headers and kernels
# compile, and all programs that the commands of default tests name, by target, by file name or as the OUTPUT of
# tutti_kernel_program. To be called when all tests are there.
function(tutti_default_tests)
    add_custom_target(default_tests)
    get_property(words GLOBAL PROPERTY TUTTI_DEFAULT_COMMANDS)
    set(targets nccl tutti_parallel cudart cuda_driver tutticc)
    if(TUTTI_DEVICE STREQUAL "cuda")
        list(APPEND targets lesson_by_hand lesson_rmsnorm_multimem lesson_custom_allreduce)
    endif()
    foreach(word ${words})
        string(REGEX MATCHALL "TARGET_FILE:[^>]*" named "${word}")
        list(TRANSFORM named REPLACE "TARGET_FILE:" "")
        get_filename_component(file_name "${word}" NAME)
        get_property(program GLOBAL PROPERTY "TUTTI_PROGRAM:${word}")
        list(APPEND targets ${named} ${program} ${file_name})
    endforeach()
    list(REMOVE_DUPLICATES targets)
    foreach(target ${targets})
        if(TARGET ${target})
            add_dependencies(default_tests ${target})
        endif()
    endforeach()
endfunction()

# A test executable in C from sources, linked against what it tests:
#   tutti_test(ring_test SOURCES ring_test.c LIBRARIES nccl LABELS unit [TIMEOUT 60] [ENVIRONMENT ...])
function(tutti_test name)
    cmake_parse_arguments(T "" "TIMEOUT" "SOURCES;LIBRARIES;LABELS;ENVIRONMENT;ARGS" ${ARGN})
    if(NOT TUTTI_TESTS)
        return()
    endif()
    add_executable(${name} ${T_SOURCES})
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${TUTTI_TEST_DIRECTORY})
    target_link_libraries(${name} PRIVATE tutti_test_support ${T_LIBRARIES})
    tutti_warnings(${name})
    tutti_add_test(NAME ${name} COMMAND ${name} ${T_ARGS} LABELS ${T_LABELS} TIMEOUT ${T_TIMEOUT}
        ENVIRONMENT ${T_ENVIRONMENT})
endfunction()

# How tutticc compiles this build's kernels: of debugging information the lines, as it does by itself (-g takes half as
# long again). With address or undefined checks -O2 takes four times as long as -O0 to compile the templates of kernels,
# and the programs run no faster.
set(TUTTI_KERNEL_OPTIONS -O2 -g1)
if(TUTTI_SANITIZE MATCHES "address|undefined")
    set(TUTTI_KERNEL_OPTIONS -O0 -g1)
elseif(TUTTI_SANITIZE)
    set(TUTTI_KERNEL_OPTIONS -O1 -g1)
endif()
if(TUTTI_SANITIZE)
    list(APPEND TUTTI_KERNEL_OPTIONS -fsanitize=${TUTTI_SANITIZE})
endif()

# A program compiled by our own tutticc from .cu sources, with the build's sanitizers; for real GPUs by nvcc:
#   tutti_kernel_program(name OUTPUT path SOURCES a.cu b.c [OPTIONS ...] [DEPENDS ...] [ON_DEMAND])
# Creates a target `name` that makes the file OUTPUT, in `all` unless ON_DEMAND. Depends on tutticc and the libraries.
function(tutti_kernel_program name)
    cmake_parse_arguments(T "ON_DEMAND" "OUTPUT" "SOURCES;OPTIONS;DEPENDS" ${ARGN})
    if(TUTTI_DEVICE STREQUAL "cuda")
        tutti_nvcc_program(${name} "${T_OUTPUT}" "${T_SOURCES}" "${T_OPTIONS}")
        if(T_ON_DEMAND)
            set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
        endif()
        return()
    endif()
    set(inputs)
    foreach(source ${T_SOURCES})
        list(APPEND inputs ${CMAKE_CURRENT_SOURCE_DIR}/${source})
    endforeach()
    get_filename_component(output_folder ${T_OUTPUT} DIRECTORY)
    file(GLOB_RECURSE vgpu_headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/vgpu/include/*.h
        ${PROJECT_SOURCE_DIR}/include/*.h ${PROJECT_SOURCE_DIR}/kernels/*.cuh)
    add_custom_command(OUTPUT ${T_OUTPUT}
        COMMAND ${CMAKE_COMMAND} -E make_directory ${output_folder}
        COMMAND $<TARGET_FILE:tutticc> ${TUTTI_KERNEL_OPTIONS} ${T_OPTIONS} -o ${T_OUTPUT} ${inputs}
        DEPENDS tutticc cudart nccl ${inputs} ${vgpu_headers} ${T_DEPENDS}
        COMMENT "tutticc ${name}" VERBATIM)
    set(all ALL)
    if(T_ON_DEMAND)
        set(all)
    endif()
    add_custom_target(${name} ${all} DEPENDS ${T_OUTPUT})
    set_property(GLOBAL PROPERTY "TUTTI_PROGRAM:${T_OUTPUT}" ${name})
endfunction()

# tutti_kernel_program with nvcc. Of its options those count that define something or that nvcc needs; libraries come by
# themselves.
function(tutti_nvcc_program name output sources options)
    get_filename_component(folder ${output} DIRECTORY)
    get_filename_component(file ${output} NAME)
    list(FILTER options INCLUDE REGEX "^(-D|--extended-lambda)")
    add_executable(${name} ${sources})
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${folder} OUTPUT_NAME ${file})
    target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:${options}>)
    target_link_libraries(${name} PRIVATE nccl tutti_device tutti_test_support)
    set_property(GLOBAL PROPERTY "TUTTI_PROGRAM:${output}" ${name})
endfunction()

# Sets TUTTI_CLANG to a clang that has libFuzzer and the sanitizers; to something false where there is none.
function(tutti_find_fuzzer)
    if(DEFINED TUTTI_CLANG)
        return()
    endif()
    set(source ${CMAKE_BINARY_DIR}/CMakeFiles/fuzzer.c)
    file(WRITE ${source} "int LLVMFuzzerTestOneInput(const unsigned char *d, unsigned long n);
int LLVMFuzzerTestOneInput(const unsigned char *d, unsigned long n) { return d == 0 && n > 0; }\n")
    set(found FALSE)
    foreach(name clang clang-14 clang-16)
        find_program(TUTTI_${name} ${name})
        mark_as_advanced(TUTTI_${name})
        if(TUTTI_${name} AND NOT found)
            execute_process(COMMAND ${TUTTI_${name}} -fsanitize=fuzzer,address,undefined ${source} -o ${source}.out
                RESULT_VARIABLE status OUTPUT_QUIET ERROR_QUIET)
            if(status EQUAL 0)
                set(found ${TUTTI_${name}})
            endif()
        endif()
    endforeach()
    if(NOT found)
        message(STATUS "No clang with libFuzzer (Debian and Ubuntu: clang and libclang-rt-dev): no fuzz tests")
    endif()
    set(TUTTI_CLANG ${found} CACHE STRING "A clang that has libFuzzer and the sanitizers; FALSE: no fuzz tests")
endfunction()

# A libFuzzer target and a short run of it as a test (label fuzz), where clang has it, and a longer one (full):
#   tutti_fuzz(name SOURCES a.c fuzz.c [OPTIONS compiler options] [SEEDS folder] [DEPENDS targets] [FULL])
# FULL: the short run, too, only in `./dev test full` and `./dev test fuzz` (half the library takes long to compile).
# What it finds lies beside the program, in build/cpu/tests/crash-*.
function(tutti_fuzz name)
    cmake_parse_arguments(T "FULL" "SEEDS" "SOURCES;OPTIONS;DEPENDS" ${ARGN})
    tutti_find_fuzzer()
    if(NOT TUTTI_TESTS OR NOT TUTTI_CLANG OR TUTTI_SANITIZE)
        return()
    endif()
    set(program ${TUTTI_TEST_DIRECTORY}/${name})
    set(corpus ${program}_corpus) # what is found goes here, not to the seeds
    list(TRANSFORM T_SOURCES PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
    if(T_SEEDS)
        set(T_SEEDS ${CMAKE_CURRENT_SOURCE_DIR}/${T_SEEDS})
    endif()
    file(MAKE_DIRECTORY ${corpus})
    add_custom_command(OUTPUT ${program}
        COMMAND ${TUTTI_CLANG} -std=gnu17 -g -O1 -D_GNU_SOURCE -fsanitize=fuzzer,address,undefined
            -fno-sanitize-recover=undefined ${T_SOURCES} ${T_OPTIONS} -o ${program}
        DEPENDS ${T_SOURCES} ${T_DEPENDS} COMMENT "clang ${name}" VERBATIM)
    add_custom_target(${name} DEPENDS ${program})
    set(labels fuzz)
    if(T_FULL)
        list(APPEND labels full)
    endif()
    tutti_add_test(NAME ${name}_build COMMAND ${CMAKE_COMMAND} --build ${CMAKE_BINARY_DIR} --target ${name}
        LABELS ${labels} TIMEOUT 300)
    # libFuzzer's own exit status for a finding is 77, which would read as skipped.
    set(command ${program} -timeout=40 -rss_limit_mb=2048 -error_exitcode=1 -artifact_prefix=${TUTTI_TEST_DIRECTORY}/)
    tutti_add_test(NAME ${name} COMMAND ${command} -runs=20000 -max_total_time=2 ${corpus} ${T_SEEDS}
        LABELS ${labels} TIMEOUT 120)
    tutti_add_test(NAME ${name}_full COMMAND ${command} -max_total_time=60 ${corpus} ${T_SEEDS} LABELS full TIMEOUT 400)
    set_tests_properties(${name}_build PROPERTIES FIXTURES_SETUP ${name})
    set_tests_properties(${name} ${name}_full PROPERTIES FIXTURES_REQUIRED ${name})
endfunction()
