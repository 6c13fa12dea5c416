# The front door; the build itself is CMake's (see CMakePresets.json).
#
#   make            builds build/release/wandistiller
#   make demo       distils the embedded teacher, ends with a picture
#   make test       builds and runs all tests, make fuzz among them
#   make fuzz       attacks readers of files for some seconds each, sanitized
#   make bench      measures this machine and this program
#   make torture    injures ranks of training jobs, COUNT of them (300), and sees that nothing hangs
#   make install    installs to PREFIX (/usr/local), below DESTDIR
#
# What is missing on a Debian machine is installed first (tools/setup.sh).

PREFIX ?= /usr/local
CMAKE_FLAGS ?=
COUNT ?= 300
BUILD = build/release

all: build

setup:
	@sh tools/setup.sh

setup-fuzz:
	@sh tools/setup.sh clang libclang-rt-dev

build: setup
	@cmake --preset release -DCMAKE_INSTALL_PREFIX=$(PREFIX) $(CMAKE_FLAGS) \
		>$(if $(V),/dev/stdout,/dev/null)
	@cmake --build --preset release --target wandistiller_cli

build-all: build
	@cmake --build --preset release

demo: build
	@sh tools/demo.sh $(BUILD)/wandistiller

test: setup-fuzz build-all
	@ctest --preset release

fuzz: setup-fuzz
	@cmake --preset fuzz $(CMAKE_FLAGS) >$(if $(V),/dev/stdout,/dev/null)
	@cmake --build --preset fuzz --target fuzz_targets
	@ctest --preset fuzz

bench: build
	@$(BUILD)/wandistiller bench

torture: build-all
	@$(BUILD)/torture $(BUILD)/wandistiller . $(COUNT) $(SEED)

install: build
	@cmake --build --preset release --target wandistiller_manual
	@cmake --install $(BUILD)

clean:
	@rm -rf $(BUILD)

.NOTPARALLEL:
.PHONY: all setup setup-fuzz build build-all demo test fuzz bench torture install clean
