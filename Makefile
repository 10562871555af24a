# Two commands are all you need on a fresh Debian 12: `make run` and `make test`. `make help` lists the rest.

JOBS ?= $(shell nproc)
SEEDS ?= 100
FIRST ?= 1
FUZZ_SECONDS ?= 60
N ?= 40
SEED ?= 1
EPLOG := build/release/src/eplog
CTEST := ctest --output-on-failure --no-tests=error --parallel $(JOBS)

# What a sanitizer found in a process whose output nobody reads, such as one that serves in the background, is in files.
SAID = if grep -l 'ERROR: \|WARNING: \|runtime error: ' build/$(1)/said.* 2>/dev/null; then \
  echo 'The sanitizer found something: see these files.'; exit 1; fi

.PHONY: help run umount build test room lint torture asan tsan tidy fuzz check-all mutants mends clean
.DEFAULT_GOAL := help

help:
	@echo 'make run      an array of eight SSDs and two log devices in ./array (files), mounted on ./mnt'
	@echo 'make umount   stop it; everything is durable when this returns'
	@echo 'make test     build and run all tests'
	@echo 'make room ROOM=engine [FILTER=Heal.*]   build and run the unit tests of one room'
	@echo 'make lint     formatting, clang-tidy over what changed last, what is tested and how'
	@echo 'make build    the program: $(EPLOG)'
	@echo 'make torture SEEDS=1000 [FIRST=1]   seeded crashes, judged by an oracle'
	@echo 'make asan     all tests under AddressSanitizer and UndefinedBehaviorSanitizer'
	@echo 'make tsan     all tests under ThreadSanitizer'
	@echo 'make tidy     clang-tidy over src'
	@echo 'make fuzz FUZZ_SECONDS=60   every decoder under libFuzzer, for so long each'
	@echo 'make check-all   asan, tsan, tidy, every case of the fault tests, fuzzing, 10,000 seeds of the torture: hours'
	@echo 'make mutants N=40 [SEED=1]   break the program in N small ways; which of them do the tests notice?'
	@echo 'make mends    take out the mend of each hole that was closed; does its test notice?'
	@echo 'make clean    remove what was built (./array stays)'
	@echo 'JOBS=N sets how many jobs run at once (now $(JOBS)).'

run:
	@scripts/packages.sh build run
	@$(MAKE) --no-print-directory build
	@scripts/run.sh $(EPLOG)

umount:
	@if mountpoint -q mnt || [ -n "$$(awk -v d="$(CURDIR)/mnt" '$$2 == d' /proc/mounts)" ]; then \
	  $(EPLOG) umount mnt; else echo 'Nothing is mounted on ./mnt.'; fi

build:
	@scripts/packages.sh build
	@cmake --preset release
	@cmake --build --preset release --parallel $(JOBS) --target eplog

# With all checks on, and optimised as far as it pays: compiling is most of the time. One build serves every test.
test:
	@scripts/packages.sh build run test
	@cmake --preset check
	@cmake --build --preset check --parallel $(JOBS)
	@$(CTEST) --test-dir build/check || { status=$$?; scripts/what_failed.sh build/check; exit $$status; }

ROOM ?= engine
FILTER ?= *
room:
	@scripts/packages.sh build test
	@cmake --preset check
	@cmake --build --preset check --parallel $(JOBS) --target $(subst /,_,$(ROOM))_tests
	@build/check/tests/$(subst /,_,$(ROOM))_tests --gtest_brief=1 --gtest_filter='$(FILTER)'

lint:
	@scripts/packages.sh build lint
	@scripts/lint.py --jobs $(JOBS)

torture:
	@scripts/packages.sh build
	@cmake --preset check
	@cmake --build --preset check --parallel $(JOBS) --target torture
	@build/check/tests/torture/torture --seeds $(SEEDS) --first $(FIRST) --jobs $(JOBS)

asan:
	@scripts/packages.sh build run test
	@cmake --preset asan
	@cmake --build --preset asan --parallel $(JOBS)
	@rm -f build/asan/said.*
	@ASAN_OPTIONS=log_path=$(CURDIR)/build/asan/said \
	  UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1:log_path=$(CURDIR)/build/asan/said $(CTEST) --test-dir build/asan
	@$(call SAID,asan)

# Without address space randomisation, which this ThreadSanitizer cannot bear on newer kernels. Tests fork servers out of
# processes with threads.
tsan:
	@scripts/packages.sh build run test
	@cmake --preset tsan
	@cmake --build --preset tsan --parallel $(JOBS)
	@rm -f build/tsan/said.*
	@TSAN_OPTIONS=log_path=$(CURDIR)/build/tsan/said:die_after_fork=0:suppressions=$(CURDIR)/tests/tsan.supp \
	  setarch $$(uname -m) --addr-no-randomize $(CTEST) --test-dir build/tsan
	@$(call SAID,tsan)

tidy:
	@scripts/packages.sh build lint
	@cmake --preset tidy
	@find src -name '*.cc' | sort | xargs -P $(JOBS) -n 1 clang-tidy-14 --quiet -p build/tidy

fuzz:
	@scripts/packages.sh build lint
	@cmake --preset fuzz
	@cmake --build --preset fuzz --parallel $(JOBS) --target fuzz_all
	@scripts/fuzz.sh build/fuzz $(FUZZ_SECONDS)

# SEEDS, FIRST, FUZZ_SECONDS and PARTS from the command line or the environment: scripts/check_all.sh.
check-all:
	@scripts/packages.sh build run test lint
	@FUZZ_SECONDS=$(FUZZ_SECONDS) JOBS=$(JOBS) scripts/check_all.sh

# universalmutator is no Debian package: it lives in an environment of its own.
mutants:
	@scripts/packages.sh build run test mutants
	@[ -x build/mutants/python/bin/python ] || \
	  { python3 -m venv build/mutants/python && build/mutants/python/bin/pip install --quiet universalmutator==1.14.1; }
	@build/mutants/python/bin/python scripts/mutants.py $(N) $(SEED) --jobs $(JOBS)

# Each hole that was closed, opened again.
mends:
	@scripts/packages.sh build run test
	@python3 scripts/mends.py $(MEND) --jobs $(JOBS)

clean:
	@if mountpoint -q mnt; then echo 'The array is mounted: make umount first.'; exit 1; fi
	rm -rf build
	@if [ -e array ]; then echo './array is kept; rm -r array mnt removes it and all that it holds.'; fi
