# The front door; the build itself is CMake's (see CMakePresets.json).
#
#   make            builds build/release/wandistiller
#   make demo       distils the embedded teacher, ends with a picture
#   make test       builds everything and runs the tests but for the long ones
#   make check      make test, then the long tests, make fuzz, test-asan and test-tsan
#   make fuzz       attacks readers of files for some seconds each, sanitized
#   make test-asan  runs under the address sanitizer the tests that end soon there
#   make test-tsan  runs tests of ranks, devices and readers under the thread sanitizer
#   make bench      measures this machine and this program
#   make torture    injures ranks of training jobs, COUNT of them (300), and sees that nothing hangs
#   make gpu-check  checks and measures a GPU (DEVICE=cuda:0), in parts (PART=first) of 9 minutes
#   make bundle     packs program, libraries and gpu-check for machines where nothing can be
#                   installed
#   make wheel      packs the Python package with its libraries, for pip on other machines
#   make install    installs to PREFIX (/usr/local), below DESTDIR
#
# What is missing on a Debian machine is installed first (tools/setup.sh).

PREFIX ?= /usr/local
CMAKE_FLAGS ?=
# Architectures that CUDA kernels are compiled for, such as 90; empty: see compile_cuda_kernels.sh.
CUDA_ARCHS ?=
COUNT ?= 300
BUILD = build/release
# Tests at a time: two more than there are cores, for many of them wait.
JOBS ?= $(shell n=$$(nproc); echo $$((n < 6 ? n + 2 : 8)))
# Sanitizers need their places in the address space free, which random addresses may take.
FIXED_ADDRESSES = $(shell setarch -R true 2>/dev/null && echo setarch -R)

all: build

setup:
	@sh tools/setup.sh

setup-fuzz:
	@sh tools/setup.sh clang libclang-rt-dev

setup-format:
	@sh tools/setup.sh clang-format || echo "checks/format is skipped: there is no clang-format"

# checks/abi compares with the newest release, where there is one.
setup-abi:
	@[ -z "$$(git tag --list 'v[0-9]*' 2>/dev/null)" ] || sh tools/setup.sh abigail-tools || \
		echo "checks/abi is skipped: there is no abidiff"

build: setup
	@cmake --preset release -DCMAKE_INSTALL_PREFIX=$(PREFIX) "-DWD_CUDA_ARCHS=$(CUDA_ARCHS)" \
		$(CMAKE_FLAGS) \
		>$(if $(V),/dev/stdout,/dev/null)
	@cmake --build --preset release --target wandistiller_cli wandistiller_manual
	@echo "built $(BUILD)/wandistiller:" && $(BUILD)/wandistiller --version

build-all: build
	@cmake --build --preset release

demo: build
	@cmake --build --preset release --target demo_sheet
	@sh tools/demo.sh $(BUILD)/wandistiller

# ctest keeps the log of its last call only; `make check` lists the tests that both calls skipped.
LOG = $(BUILD)/Testing/Temporary/LastTest.log

test: build-all
	@ctest --preset release -LE long -j $(JOBS)
	@cp $(LOG) $(BUILD)/Testing/test.log
	@sh tools/report_skips.sh $(BUILD)/Testing/test.log

check: test test-long fuzz test-asan test-tsan
	@sh tools/report_skips.sh $(BUILD)/Testing/test.log $(BUILD)/Testing/test-long.log

test-long: build-all setup-format setup-abi
	@ctest --preset release -L long -j $(JOBS)
	@cp $(LOG) $(BUILD)/Testing/test-long.log

test-asan test-tsan: test-%: setup
	@cmake --preset $* $(CMAKE_FLAGS) >$(if $(V),/dev/stdout,/dev/null)
	@cmake --build --preset $* --target sanitized_tests
	@$(FIXED_ADDRESSES) ctest --preset $* -L sanitized -j $(JOBS)

fuzz: setup-fuzz
	@cmake --preset fuzz $(CMAKE_FLAGS) >$(if $(V),/dev/stdout,/dev/null)
	@cmake --build --preset fuzz --target fuzz_targets
	@ctest --preset fuzz

bench: build
	@$(BUILD)/wandistiller bench

torture: build-all
	@$(BUILD)/torture $(BUILD)/wandistiller . $(COUNT) $(SEED)

gpu-check: build
	@cmake --build --preset release --target gpu_check_programs
	@sh tools/gpu_check.sh $(BUILD) $(BUILD)/gpu-report.md $(PART)

bundle: build
	@cmake --build --preset release --target gpu_check_programs
	@sh tools/bundle.sh $(BUILD) $(BUILD)/wandistiller-linux-$$(uname -m).tar.xz

wheel: setup
	@CUDA_ARCHS="$(CUDA_ARCHS)" sh tools/make_wheel.sh $(BUILD)

install: build
	@cmake --build --preset release --target wandistiller_shared
	@cmake --install $(BUILD)
	@[ -n "$(DESTDIR)" ] || [ "$$(id -u)" -ne 0 ] || ! command -v ldconfig >/dev/null || ldconfig

clean:
	@rm -rf $(BUILD)

.NOTPARALLEL:
.PHONY: all setup setup-fuzz setup-format setup-abi build build-all demo test check test-long \
	test-asan test-tsan fuzz bench torture gpu-check bundle wheel install clean
