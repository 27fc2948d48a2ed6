// What a stranger's bytes are given to: the readers of the storage formats. Each target ends the process
// where a reader breaks a promise that its header makes; all else (memory, undefined behaviour, time) the
// sanitizers and the fuzzer see. Used by libFuzzer for hours (tests/fuzz/run) and by fuzz_test for seconds.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace perdura::fuzz {

using input = std::span<const std::uint8_t>;
using input_bytes = std::vector<std::uint8_t>;

struct target {
  const char* name;
  bool (*run)(input bytes);             // whether anything was read
  std::vector<input_bytes> (*seeds)();  // good files, from which mutation goes on
};

// The first byte says how: as it is, or with the checksums put right, so that what lies behind them is
// reached.
bool run_manifest(input bytes);
bool run_pack(input bytes);
// The first byte says as what: a header alone, a file, or a folder's index.
bool run_safetensors(input bytes);

std::vector<input_bytes> manifest_seeds();
std::vector<input_bytes> pack_seeds();
std::vector<input_bytes> safetensors_seeds();

inline const std::vector<target>& targets() {
  static const std::vector<target> all{{"manifest", run_manifest, manifest_seeds},
                                       {"pack", run_pack, pack_seeds},
                                       {"safetensors", run_safetensors, safetensors_seeds}};
  return all;
}

}  // namespace perdura::fuzz
