#!/bin/sh
# Runs the parts `gpus` and `first` of tools/gpu_check.sh with the whole program and the tests of a
# device on stand-in GPUs: what the parts run is what the program accepts.
#
# Usage: tests/gpu_check_standin.sh SOURCE_FOLDER BUILD_FOLDER
set -eu
source=$1 build=$2
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
mkdir -p "$stage/build"
link() { # NAME FILE
    [ -x "$build/$2" ] || { echo "$build/$2 is missing: build all tests"; exit 1; }
    ln -s "$build/$2" "$stage/build/$1"
}
link wandistiller wandistiller_standin
link make_pipeline make_pipeline
cat >"$stage/build/gpu_tests" <<END
#!/bin/sh
case \$1 in
"") echo device ;;
fixtures) echo "not tested here: fixtures: tests/fixtures-standin does that"; exit 77 ;;
*) exec "$build/tests/test_dev_cuda_\$1" ;;
esac
END
chmod +x "$stage/build/gpu_tests"
for test in device lone_peer properties reopen; do
    [ -x "$build/tests/test_dev_cuda_$test" ] ||
        { echo "the test $test is missing: build all tests"; exit 1; }
done

# Rates of its own: other tests measure stand-ins that take no memory for functions.
export XDG_CACHE_HOME="$stage/cache"
DEVICE=cuda:0@link=25GB/s,compute=1TFLOP/s QUICK=1 WD_STANDIN_GPUS=2 WD_STANDIN_NCCL=1 \
    WD_STANDIN_FUNCTION_KIB=64 \
    sh "$source/tools/gpu_check.sh" "$stage/build" "$stage/report.md" gpus || true
grep '^| gpus | ' "$stage/report.md" >"$stage/table"
[ "$(grep -c '| pass |$' "$stage/table")" = 6 ] || {
    cat "$stage/report.md"
    exit 1
}

# On one GPU the part says so, and tests NCCL alone.
DEVICE=cuda:0@link=25GB/s,compute=1TFLOP/s QUICK=1 WD_STANDIN_GPUS=1 WD_STANDIN_NCCL=1 \
    sh "$source/tools/gpu_check.sh" "$stage/build" "$stage/report.md" gpus || true
grep '^| gpus | ' "$stage/report.md" >"$stage/table"
[ "$(grep -c '| skipped: one GPU | not run |$' "$stage/table")" = 5 ] &&
    [ "$(grep -c '| pass |$' "$stage/table")" = 1 ] || {
    cat "$stage/report.md"
    exit 1
}

# The part `first` on one GPU, but for its benchmarks, which have no meaning here and take minutes.
mv "$stage/build/wandistiller" "$stage/wandistiller"
cat >"$stage/build/wandistiller" <<END
#!/bin/sh
[ "\$1" = bench ] || exec "$stage/wandistiller" "\$@"
echo "copy, host to device          256.00 MiB     0.270 ms      1.00 GB/s"
END
chmod +x "$stage/build/wandistiller"
DEVICE=cuda:0@link=25GB/s,compute=1TFLOP/s QUICK=1 PART_SECONDS=3000 WD_STANDIN_GPUS=1 \
    WD_STANDIN_NCCL=1 WD_STANDIN_FUNCTION_KIB=64 \
    sh "$source/tools/gpu_check.sh" "$stage/build" "$stage/report.md" first >"$stage/said" || true
grep '^| first | ' "$stage/report.md" >"$stage/table"
[ "$(grep -c '| pass |$' "$stage/table")" = 2 ] &&
    grep -q '| 0 of those that ran; not run: fixtures | not run |$' "$stage/table" &&
    grep -Eq '^\| first \| blocks of 14B, .* \| [0-9.]+ \| shown \|$' "$stage/table" &&
    grep -q '^cuda:1: ' "$stage/report.md.parts/first/fp32-balanced" || {
    cat "$stage/said" "$stage/report.md"
    exit 1
}
