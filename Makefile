# SPDX-License-Identifier: Apache-2.0
# A thin front door: each target says what it runs; the work is done by cargo, guest-kernel/build.sh and flatboot-bench.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# Several builds at once only compete; each uses all processors.
.NOTPARALLEL:
SHELL := /bin/bash

MEMORY ?= 1G
CPUS   ?= 2
KEEP   ?= 0
NET    ?= 0
PORT   ?= 2222
FIRMWARE ?= 0
KERNEL ?= guest
RUNS   ?= 10
PROMISES ?=
DEBUG_KERNEL ?= debug
MODES  ?= parallel async ondemand
DURATION ?= 600
TIMES  ?= 1000
CUTS   ?= 200
CYCLES ?= 500
KILLS  ?= 200
SERVE  ?= 60
SECONDS ?= 300
TARGETS ?=
INPUT  ?=
SEED   ?=

# What make calls runs in several directories.
ifneq ($(FLATBOOT_CACHE),$(filter /%,$(FLATBOOT_CACHE)))
override export FLATBOOT_CACHE := $(CURDIR)/$(FLATBOOT_CACHE)
endif
CACHE  := $(or $(FLATBOOT_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/flatboot)
BIN    := target/x86_64-unknown-linux-gnu/release
BENCH  := $(BIN)/flatboot-bench
DENY   := $(or $(shell command -v cargo-deny),$(CACHE)/tools/bin/cargo-deny)
DENY_VERSION := 0.20.2
FUZZER := $(CACHE)/tools/bin/cargo-fuzz
FUZZER_VERSION := 0.13.1

RESULTS := target/bench/results.json
REPORT  := target/bench/report.html
SENT    := target/bench/results-to-send.json.zst
comma   := ,
# Earlier results are set aside under the time of their last boot, never overwritten; those that a sweep still writes, which it has
# locked, stay where they are.
define sweep
benches/packages.sh kernel && mkdir -p target/bench && \
if [ -e $(RESULTS) ]; then \
flock --nonblock $(RESULTS) mv -v $(RESULTS) "target/bench/results-$$(date -r $(RESULTS) +%Y%m%d-%H%M%S).json" || \
{ echo 'make: $(RESULTS): cannot be set aside; if another sweep writes it, that must end first' >&2; exit 1; }; fi && \
$(BENCH) run $(1) --out $(RESULTS) && $(BENCH) show $(RESULTS) && $(BENCH) report $(RESULTS) -o $(REPORT) && \
echo "==> $(RESULTS) and $(REPORT)" && \
if grep -q '"kvm": "real"' $(RESULTS); then $(BENCH) scrub $(RESULTS) -o $(SENT) && \
echo '==> measured on real KVM: docs/measuring.md says what to do with $(SENT)'; fi
endef

fuzz_run = vmm/fuzz/run.sh --seconds '$(SECONDS)' --cache '$(CACHE)/fuzz' $(if $(INPUT),--input '$(INPUT)')

# The kernel of KERNEL=cloud instead of the small one, for a command that comes after it.
WITH_KERNEL := $(if $(filter cloud,$(KERNEL)),benches/packages.sh kernel cloud && kernel="$$(guest-kernel/cloud.sh)" && FLATBOOT_GUEST_KERNEL="$$kernel")
$(if $(filter-out guest cloud,$(KERNEL)),$(error KERNEL=$(KERNEL): must be guest or cloud))

.PHONY: help boot test check unit browser vm build kernel kernel-cloud debug stress soak repeat shell bench bench-quick ablation spec clean host emulator toolchain deny fuzz fuzz-words fuzzer firmware userland power service snapshots work fleet-test packages packages-test reproducible

help: ## this list
	@echo 'Flatboot: VMs whose boot time does not grow with their memory.'
	@echo
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 21
	@echo
	@echo 'Missing Debian packages are installed by name; builds are cached in $(CACHE).'
	@echo 'Where /dev/kvm cannot run ordinary guests, VMs run in an emulated KVM host; FLATBOOT_KVM=real|emulated overrides.'

boot: host ## boot Debian 12 under flatboot: MEMORY=64G CPUS=4 KEEP=1; NET=1 with ssh at PORT=2222; FIRMWARE=1 through UEFI; KERNEL=cloud
	@benches/packages.sh kernel rootfs $(if $(filter 1,$(FIRMWARE)),firmware esp) $(if $(filter 1,$(NET)),net)
	@$(WITH_KERNEL) $(BENCH) boot --memory '$(MEMORY)' --cpus '$(CPUS)' $(if $(filter 1,$(FIRMWARE)),--firmware) $(if $(filter 1,$(KEEP)),--keep) $(if $(filter 1,$(NET)),--ssh-port '$(PORT)')

test: check unit browser vm ## everything: style, units and properties, the report, then VMs

check: toolchain deny ## style and lints: rustfmt, clippy, cargo-deny, shellcheck, checkpatch; no KVM needed
	@benches/packages.sh check kernel
	cargo fmt --all --check
	cargo clippy --quiet --workspace --all-targets -- --deny warnings
	cargo clippy --quiet -p flatboot-bench --test host --test vm --test report --test fleet -- --deny warnings
	"$(DENY)" --offline --log-level error check bans licenses sources
	git ls-files '*.sh' .ci/run | xargs shellcheck
	guest-kernel/check.sh

unit: toolchain ## unit and property tests, the firmware's host tests among them; no KVM needed
	cargo test --quiet --workspace
	@benches/packages.sh firmware
	firmware/check.sh

browser: toolchain ## the report in a browser; REPORT_OF=results.json also takes docs/images/report.png of that file
	@benches/packages.sh browser || echo 'make: no browser could be installed: the report is not tested in one' >&2
	$(if $(REPORT_OF),FLATBOOT_REPORT_OF='$(abspath $(REPORT_OF))') cargo test --quiet -p flatboot-bench --test report

vm: host ## tests that boot VMs: starts, ends, bad input, bad tables; KERNEL=cloud: those of memory and Debian, on Debian's kernel
	@benches/packages.sh kernel rootfs firmware esp net
ifeq ($(KERNEL),cloud)
	@$(WITH_KERNEL) bash -c 'set -e; for tests in cloud:: debian:: elastic:: memmap::; do \
		cargo test --quiet -p flatboot-bench --test vm -- $$tests; done'
else
	guest-kernel/check-fast-path.sh
	guest-kernel/check-switch-path.sh
	cargo test --quiet --workspace --test host --test vm
endif

build: toolchain ## flatboot and flatboot-bench
	@echo '==> building flatboot and flatboot-bench'
	@cargo build --release --workspace

# What starts VMs may have to emulate their host, and needs both programs.
# Its package comes first: whoever is asked for root's password is so at once, and not after minutes of compiling.
host: toolchain emulator build

emulator:
	@benches/packages.sh host

kernel: ## the patched guest kernel: vmlinux and bzImage
	@benches/packages.sh kernel
	@guest-kernel/build.sh guest

kernel-cloud: ## Debian's own kernel for clouds with the series, as .deb packages (three quarters of an hour)
	@benches/packages.sh kernel cloud
	@guest-kernel/cloud.sh

userland: ## the Debian disk with programs that keep a VM at work (fio, iperf3, nginx and others); prints its path
	@benches/packages.sh rootfs
	@benches/userland/debian.sh --work

packages: toolchain ## Debian packages of flatboot, flatboot-bench and the firmware in target/packages; KERNEL=cloud: its kernel's for real KVM, too
	@benches/packages.sh firmware packages $(if $(filter cloud,$(KERNEL)),kernel cloud)
	@$(if $(filter cloud,$(KERNEL)),kernel="$$(EMULATION=0 guest-kernel/cloud.sh)" &&) \
		vmm/debian/build.sh $(if $(filter cloud,$(KERNEL)),"$$kernel")

packages-test: host packages ## lintian on them; then they are installed in a clean Debian 12, where VMs run, by hand and under systemd
	lintian --fail-on error,warning target/packages/flatboot*.deb
	@benches/packages.sh kernel rootfs
	FLATBOOT_PACKAGES='$(CURDIR)/target/packages' cargo test --quiet --release -p flatboot-bench --test vm -- packages::

reproducible: toolchain ## builds the packages twice, at different paths, and compares their bytes; KERNEL=cloud: its kernel's, too (long)
	@benches/packages.sh firmware packages $(if $(filter cloud,$(KERNEL)),kernel cloud)
	@vmm/debian/reproducible.sh $(if $(filter cloud,$(KERNEL)),--kernel)

firmware: ## the UEFI firmware: FLATBOOT.fd, for flatboot run --firmware, and for -bios of QEMU's microvm
	@benches/packages.sh firmware
	@firmware/build.sh release

debug: host ## memory that comes and goes, and the kernel's mm selftests, with every check on (long): MODES='serial parallel' DEBUG_KERNEL=kasan or rt
	@benches/packages.sh kernel
	@kernel="$$(guest-kernel/build.sh '$(DEBUG_KERNEL)')" && FLATBOOT_GUEST_KERNEL="$$kernel" \
		cargo test --quiet -p flatboot-bench --test vm -- elastic::
	@benches/selftests.sh --kernel '$(DEBUG_KERNEL)' $(MODES)

stress: host ## stress-ng while memory goes offline and comes back (long): MODES='async ondemand' DURATION=600
	@benches/packages.sh kernel stress
	@benches/selftests.sh --kernel '$(DEBUG_KERNEL)' --tests stress --seconds '$(DURATION)' $(MODES)

soak: host ## random VMs that end in random ways, hosts side by side: SECONDS=300; SEED=… begins at a boot that was named
	@benches/packages.sh kernel
	@$(WITH_KERNEL) $(BENCH) soak --seconds '$(SECONDS)' $(if $(SEED),--seed '$(SEED)')

repeat: host ## what must be the same each time, TIMES=1000 over: lives of VMs, kills, pauses; 10 times as many resets
	FLATBOOT_TIMES='$(TIMES)' cargo test --quiet -p flatboot --test api -- life::
	FLATBOOT_TIMES='$(TIMES)0' cargo test --quiet -p flatboot --test cli -- 'only resets'
	FLATBOOT_TIMES='$(TIMES)' cargo test --quiet -p flatboot --test cli -- 'killed at any moment'
	@benches/packages.sh kernel
	FLATBOOT_TIMES='$(TIMES)' cargo test --quiet --release -p flatboot-bench --test vm -- api::pauses

fleet-test: host ## sweeps and fleets on a Slurm cluster of three nodes on this machine, nodes lost among them; a fleet of real VMs
	@benches/packages.sh kernel slurm
	cargo test --quiet --release -p flatboot-bench --test fleet

service: host ## Debian with nginx and ssh on a tap for 64 clients, amid malformed packets and floods: SERVE=60 seconds
	@benches/packages.sh kernel rootfs net work
	FLATBOOT_SECONDS='$(SERVE)' cargo test --quiet --release -p flatboot-bench --test vm -- service::

power: host ## power cuts under writes that are flushed, CUTS=200 (long): nothing that the guest was told is safe may be lost
	@benches/packages.sh kernel rootfs
	FLATBOOT_TIMES='$(CUTS)' cargo test --quiet --release -p flatboot-bench --test vm -- power::

snapshots: host ## CYCLES=500 of save and restore, KILLS=200 of each, RUNS=10 rounds of what is timed of snapshots and clones (long)
	@benches/packages.sh kernel rootfs
	FLATBOOT_TIMES='$(CYCLES)' cargo test --quiet --release -p flatboot-bench --test vm -- cycles::nothing
	FLATBOOT_TIMES='$(KILLS)' cargo test --quiet --release -p flatboot-bench --test vm -- cycles::killed
	FLATBOOT_TIMES='$(RUNS)' cargo test --quiet --release -p flatboot-bench --test vm -- snapshot_size::
	FLATBOOT_TIMES='$(RUNS)' cargo test --quiet --release -p flatboot-bench --test vm -- clone::

shell: host ## a shell in the emulated KVM host
	@benches/packages.sh kernel
	@$(BENCH) host shell

bench: host ## sweep sizes, modes and VMMs, the stock kernel among them (144 boots): target/bench/results.json and report.html
	@$(call sweep,--memory 1G$(comma)8G$(comma)64G --mode stock$(comma)parallel$(comma)async$(comma)ondemand --vmm flatboot$(comma)qemu --runs 5)

bench-quick: host ## a first look: 1 and 16 GiB, three modes, flatboot only, without the stock kernel (24 boots)
	@$(call sweep,--memory 1G$(comma)16G --vmm flatboot --runs 3)

ablation: host ## what each part is worth: switched off one at a time at 1, 64 and 256 GiB (231 boots with RUNS=10)
	@$(call sweep,--memory 1G$(comma)64G$(comma)256G --without all --vmm flatboot --runs '$(RUNS)')

work: host ## what guests get done, under flatboot and QEMU: network and disk, RUNS=10 (22 boots of 17 workloads)
	@benches/packages.sh work
	@$(call sweep,--work net$(comma)vhost$(comma)disk --memory 1G --vmm flatboot$(comma)qemu --runs '$(RUNS)' --timeout 600)

spec: host ## every promise of docs/SPECIFICATION.md put to the test: PROMISES='speed boots' RUNS=10; KERNEL=cloud
	@benches/packages.sh kernel rootfs firmware esp net work
	@benches/packages.sh browser || echo 'make: no browser could be installed: the report is not tested in one' >&2
	@$(WITH_KERNEL) FLATBOOT_TIMES='$(RUNS)' $(BENCH) spec --runs '$(RUNS)' $(PROMISES)

fuzz: fuzz-words toolchain fuzzer ## fuzzing guided by coverage: SECONDS=300 for all TARGETS='api_request vm_config'; INPUT=FILE repeats one
	@benches/packages.sh fuzz
	@$(fuzz_run) --cargo-fuzz '$(FUZZER)' $(TARGETS)

clean: ## remove what cargo built (the cache stays, and so do results and packages in target)
	rm -rf target/debug target/release target/x86_64-unknown-linux-gnu target/packaged

toolchain:
	@command -v cargo >/dev/null || { echo 'make: no cargo: install a current stable Rust toolchain first' >&2; exit 1; }
	@wanted="$$(sed -n 's/^rust-version = "\(.*\)"$$/\1/p' Cargo.toml)" found="$$(rustc --version | cut -d ' ' -f 2)" && \
		printf '%s\n' "$$wanted" "$$found" | sort -VC || { \
		echo "make: Rust $$found: must be $$wanted or later: install a current stable toolchain" >&2; exit 1; }
	@command -v cc >/dev/null || benches/packages.sh kernel

deny: toolchain
	@command -v cargo-deny >/dev/null || "$(DENY)" --version 2>/dev/null | grep -qxF 'cargo-deny $(DENY_VERSION)' || { \
		echo '==> installing cargo-deny $(DENY_VERSION) into $(CACHE)/tools (once, some minutes)'; \
		cargo install --quiet --locked --root '$(CACHE)/tools' --version $(DENY_VERSION) cargo-deny; }

# Before anything is installed: nobody waits for that to be told of a wrong word.
fuzz-words:
	@$(fuzz_run) --check $(TARGETS)

fuzzer: toolchain
	@"$(FUZZER)" --version 2>/dev/null | grep -qxF 'cargo-fuzz $(FUZZER_VERSION)' || { \
		echo '==> installing cargo-fuzz $(FUZZER_VERSION) into $(CACHE)/tools (once, some minutes)'; \
		cargo install --quiet --locked --root '$(CACHE)/tools' --version $(FUZZER_VERSION) cargo-fuzz; }
