#!/usr/bin/env bash
# The meshes on which the GPT is tried: sourced by gpt_meshes and gpt_memory.
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2034 # used there

# name;ranks;options. What is compared with: "one", for models with experts "moe", for bf16 "bf16": sums of tensor ranks are
# rounded to bf16, so bf16 is compared without these.
meshes=(
    "one;1;"
    "dp2;2;"
    "dp4;4;"
    "zero1;2;--zero"
    "zero1-dp4;4;--zero --bucket-bytes 50000"
    "tp2;2;--tp 2"
    "tp4;4;--tp 4"
    "tp2-sp;2;--tp 2 --sp"
    "tp3-sp;3;--tp 3 --sp --heads 6 --width 96 --learning-rate 3e-4"
    "pp2-gpipe;2;--pp 2 --schedule gpipe"
    "pp2-1f1b;2;--pp 2 --schedule 1f1b"
    "pp4;4;--pp 4"
    "dp2xtp2;4;--tp 2"
    "dp2xpp2;4;--pp 2"
    "tp2xpp2;4;--tp 2 --pp 2"
    "dp2xpp2xtp2;8;--pp 2 --tp 2"
    "dp2xpp2xtp2-all;8;--pp 2 --tp 2 --sp --zero --bucket-bytes 20000"
    "moe;1;"
    "moe-dp2;2;"
    "ep2;2;--ep 2"
    "ep4;4;--ep 4"
    "dp2xep2;4;--ep 2"
    "dp2xep2-zero1;4;--ep 2 --zero --bucket-bytes 50000"
    "ep2xtp2-sp;4;--ep 2 --tp 2 --sp"
    "ep2xpp2;4;--ep 2 --pp 2"
    "bf16;1;--type bf16"
    "bf16-dp2-zero1;2;--type bf16 --zero"
    "bf16-pp2;2;--type bf16 --pp 2"
    "bf16-pp2-zero1;4;--type bf16 --pp 2 --zero"
)
experts=(--experts 4 --moe-every 2)

# has_experts NAME: whether the mesh's model has some.
has_experts() {
    case $1 in moe* | *ep*) ;; *) return 1 ;; esac
}

# is_wanted NAME [WANTED...]: whether it is among them; without any, all are.
is_wanted() {
    local name=$1
    shift
    [ $# -eq 0 ] || [[ " $* " == *" $name "* ]]
}
