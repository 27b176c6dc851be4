# The program that trains and samples, and its tests. SPDX-License-Identifier: Apache-2.0
pkg_check_modules(SODIUM REQUIRED IMPORTED_TARGET libsodium)
add_library(gpt_training STATIC adamw.c checkpoint.c choose.c corpus.c curve.c export.c losses.c manifest.c memory.c optimizer.c
    options.c piece.c piece_file.c problem.c progress.c sample.c state.c storage.c train.c training.c words.c
    world.c)
target_compile_definitions(gpt_training PRIVATE _GNU_SOURCE)
target_link_libraries(gpt_training PUBLIC gpt_core PkgConfig::SODIUM)
tutti_warnings(gpt_training)
set_source_files_properties(adamw.c PROPERTIES COMPILE_OPTIONS "-O3;-fno-math-errno") # vectors of square roots

add_executable(gpt main.c)
set_target_properties(gpt PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/examples/gpt)
target_compile_definitions(gpt PRIVATE _GNU_SOURCE)
target_link_libraries(gpt PRIVATE gpt_training)
tutti_warnings(gpt)
configure_file(corpus.txt ${CMAKE_BINARY_DIR}/examples/gpt/corpus.txt COPYONLY) # the default lies beside the program

# gpt_program_test(options LABELS unit): options_test.c
function(gpt_program_test name)
    cmake_parse_arguments(G "" "TIMEOUT" "LABELS" ${ARGN})
    tutti_test(gpt_${name}_test SOURCES ${name}_test.c LIBRARIES gpt_training m TIMEOUT ${G_TIMEOUT} LABELS ${G_LABELS})
    if(TARGET gpt_${name}_test)
        target_compile_definitions(gpt_${name}_test PRIVATE _GNU_SOURCE)
    endif()
endfunction()
gpt_program_test(piece LABELS unit)
gpt_program_test(checkpoint LABELS ranks waits heavy TIMEOUT 180)
gpt_program_test(corpus LABELS unit)
gpt_program_test(adamw LABELS unit)
gpt_program_test(options LABELS unit)
gpt_program_test(output LABELS unit)
gpt_program_test(words LABELS unit)
