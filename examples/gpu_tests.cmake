# The lessons on real GPUs: ranks as threads, as processes, and as processes under MPS; on several GPUs; refusals; as jobs.
# Skipped where there is no GPU. SPDX-License-Identifier: Apache-2.0
set(expected ${CMAKE_CURRENT_SOURCE_DIR}/expected)

# gpu_lesson(name "further labels" command...)
function(gpu_lesson name labels)
    tutti_add_test(NAME lesson_${name} LABELS lessons ${labels} TIMEOUT 150 COMMAND ${ARGN})
endfunction()

# gpu_golden(name "further labels" status program arguments...): prints exactly expected/name.txt, apart from stderr,
# where the library says that ranks share a GPU.
function(gpu_golden name labels status program)
    gpu_lesson(${name} "${labels}" ${PROJECT_SOURCE_DIR}/tests/support/golden ${status} ${expected}/${name}.txt
        sh -c "exec \"$0\" \"$@\" 2>/dev/null" ${lessons_folder}/${program} ${ARGN})
endfunction()

gpu_golden(by_hand gpus 0 by_hand)
gpu_golden(lsa "" 0 rmsnorm_lsa --ranks 2 --tokens 256 --hidden 128)
gpu_golden(custom_allreduce_switched_off "" 0 custom_allreduce --ranks 2 --tokens 10)
gpu_golden(multimem_switched_off gpus 1 rmsnorm_multimem --ranks 2)
gpu_golden(debugging gpus 0 debugging)
gpu_golden(lsa_help "" 0 rmsnorm_lsa --help)

# The whole of each lesson that is possible, with ranks spread over one GPU in all ways; with 2 and 4 also over all GPUs
# there are. A program takes a second to start on a GPU, and so does each process without MPS: 4 ranks run one type, and
# so do 8 processes without MPS.
foreach(how threads processes mps)
    set(after --processes)
    if(how STREQUAL "threads")
        set(after)
    endif()
    foreach(ranks 2 4 8)
        set(labels)
        if(how STREQUAL "mps")
            set(labels mps)
        elseif(ranks LESS 8)
            set(labels gpus)
        endif()
        if(ranks EQUAL 2 AND after)
            gpu_lesson(by_hand_${how} "${labels}" ${lessons_folder}/by_hand ${after})
            gpu_lesson(debugging_${how} "${labels}" ${lessons_folder}/debugging ${after})
        endif()
        gpu_lesson(custom_allreduce_${ranks}_${how} "${labels}" ${lessons_folder}/custom_allreduce --ranks ${ranks}
            --threads 1024 --iterations 3 ${after})
        gpu_lesson(rmsnorm_lsa_float_${ranks}_${how} "${labels}" ${lessons_folder}/rmsnorm_lsa --ranks ${ranks}
            --iterations 3 ${after})
        if(ranks EQUAL 4 OR (ranks EQUAL 8 AND how STREQUAL "processes"))
            continue()
        endif()
        foreach(type half bf16)
            gpu_lesson(rmsnorm_lsa_${type}_${ranks}_${how} "${labels}" ${lessons_folder}/rmsnorm_lsa --ranks ${ranks}
                --dtype ${type} --iterations 3 ${after})
        endforeach()
        gpu_lesson(rmsnorm_lsa_odd_${ranks}_${how} "${labels}" ${lessons_folder}/rmsnorm_lsa --ranks ${ranks}
            --tokens 100 --hidden 20001 --threads 96 --dtype half ${after})
    endforeach()
endforeach()

# A kernel that waits for ever ends the program.
gpu_lesson(gpu_deadlock "" ${PROJECT_SOURCE_DIR}/tests/support/golden 0 ${expected}/debugging_gpu_deadlock.txt
    sh -c "\"$0\" --fault deadlock 2>/dev/null | sed 's/^rank [01]/rank R/' | head -n 3" ${lessons_folder}/debugging)

# Started by launchers. Four tasks with a GPU each become as many as there are GPUs for; lessons 09 and 11 go as far as
# their first collective.
set(run $<TARGET_FILE:tutti_run>)
if(TARGET lesson_pmix)
    gpu_lesson(pmix gpus ${expected}/launched_test pmix ${lessons_folder}/pmix ${run} -n 2)
endif()
gpu_lesson(isolation gpus ${expected}/isolation_test gpu_isolated ${run} ${lessons_folder}/isolation)
gpu_lesson(isolation_shared "" ${expected}/isolation_test gpu_shared ${run} ${lessons_folder}/isolation)
gpu_lesson(slurm gpus ${expected}/launched_test slurm ${lessons_folder}/slurm ${run} -n 2)
gpu_lesson(slurm_srun "" ${expected}/launched_test slurm ${lessons_folder}/slurm srun -N1 -n2)
