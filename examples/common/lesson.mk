# SPDX-License-Identifier: Apache-2.0
# How every lesson is built. Its Makefile sets NAME and ABOUT and includes this file.
# CUDA_HOME has bin/nvcc: tutti's (build/cpu of the project, or its installed prefix) or CUDA's.
# NCCL_HOME has include/nccl.h and lib/libnccl.so. tutti's prefix is both.
# Where the project is built (./dev build) or installed, its own compiler is taken; settings on make's command line win over that,
# those of the environment do not: many machines have a CUDA_HOME.
FOLDER := $(dir $(lastword $(MAKEFILE_LIST)))
# Built beside the lessons, or installed with them (share/tutti/examples).
# The shell looks, because make takes a path with a space for two.
OURS := $(shell for prefix in "$(FOLDER)../../build/cpu" "$(FOLDER)../../../.."; do \
    if [ -x "$$prefix/bin/tutticc" ]; then cd "$$prefix" && pwd && break; fi; done)
ifneq ($(OURS),)
CUDA_HOME := $(OURS)
NCCL_HOME := $(CUDA_HOME)
NVCC := "$(CUDA_HOME)/bin/nvcc"
endif
CUDA_HOME ?= /usr/local/cuda
# For real GPUs: what ./dev build cuda has made goes before an NCCL beside CUDA.
REAL := $(shell cd "$(FOLDER)../../build/cuda" 2>/dev/null && [ -e lib/libnccl.so ] && pwd)
NCCL_HOME ?= $(or $(REAL),$(if $(wildcard $(CUDA_HOME)/include/nccl.h),$(CUDA_HOME),/usr))
NVCC ?= "$(CUDA_HOME)/bin/nvcc"
ARCH ?= sm_90
FLAGS ?= -O2 -g
ARGS ?=
# Options to show in the help; empty: the program has none.
SAMPLE ?= --ranks 4
# Of libraries besides: where their headers are, and themselves.
INCLUDES ?=
LIBS ?=
# MPI=1: the ranks are processes that mpirun starts.
MPI ?= 0
MPICC ?= mpicc
MPIRUN ?= mpirun
# How many of them; a lesson with a number of its own says so.
RANKS ?= 4
ifeq ($(MPI),1)
MPI_OBJECT := lesson_mpi.o
LIBS += $(filter -L% -l%,$(shell $(MPICC) -show))
LAUNCH := $(MPIRUN) -n $(RANKS)
endif
# What starts the program; empty: it starts its ranks itself.
LAUNCH ?=

COMMON := $(FOLDER)lesson.c
HEADERS := $(FOLDER)lesson.h $(FOLDER)lesson_mpi.h $(FOLDER)matrix.cuh $(FOLDER)network.cuh

all: $(NAME)

# What was built with other settings is built again.
SETTINGS := $(NVCC) $(FLAGS) $(ARCH) $(NCCL_HOME) $(INCLUDES) $(LIBS) $(MPI) $(MPICC)
.settings: FORCE
	@printf '%s\n' '$(SETTINGS)' | cmp -s - $@ || printf '%s\n' '$(SETTINGS)' >$@

$(NAME): main.cu $(COMMON) $(HEADERS) $(MPI_OBJECT) .settings
	$(NVCC) $(FLAGS) -std=c++17 -arch=$(ARCH) -I$(FOLDER) -I"$(NCCL_HOME)/include" $(INCLUDES) -c main.cu -o main.o
	$(NVCC) $(FLAGS) -I$(FOLDER) -c $(COMMON) -o lesson.o
	$(NVCC) $(FLAGS) main.o lesson.o $(MPI_OBJECT) -L"$(NCCL_HOME)/lib" -Xlinker -rpath="$(NCCL_HOME)/lib" -lnccl $(LIBS) -lpthread -lm -o $@

lesson_mpi.o: $(FOLDER)lesson_mpi.c $(FOLDER)lesson_mpi.h .settings
	$(MPICC) -O2 -g -I$(FOLDER) -c $(FOLDER)lesson_mpi.c -o $@

run: $(NAME)
	$(LAUNCH) ./$(NAME) $(ARGS)

clean:
	rm -f $(NAME) main.o lesson.o lesson_mpi.o .settings

help:
	@echo "$(ABOUT)"
	@echo "  make         build $(NAME)"
	@echo "  make run     build it and run it$(if $(SAMPLE),; ARGS=\"$(SAMPLE)\" passes options)"
	@echo "  make clean   remove what make made"
	@echo "settings:"
	@echo "  CUDA_HOME    $(CUDA_HOME)"
	@echo "  NCCL_HOME    $(NCCL_HOME)"
	@echo "  ARCH         $(ARCH)"
	@echo "  MPI          1: ranks are processes of MPI (MPICC $(MPICC), MPIRUN $(MPIRUN), RANKS $(RANKS))"
	@echo "options of the program: ./$(NAME) --help"

.PHONY: all run clean help FORCE
