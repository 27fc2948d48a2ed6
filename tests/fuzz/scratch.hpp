// A folder in memory for readers that want files; one a process, gone with it.
#pragma once

#include <string>

#include "tests/fuzz/targets.hpp"
#include "tests/unit/storage_fixture.hpp"

namespace perdura::fuzz {

inline const std::filesystem::path& scratch() {
  static const storage::temporary_folder folder;
  return folder.path();
}

inline std::string text_of(input bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

inline input_bytes bytes_of(char first, const std::string& text) {
  const std::string all = first + text;
  return {all.begin(), all.end()};
}

}  // namespace perdura::fuzz
