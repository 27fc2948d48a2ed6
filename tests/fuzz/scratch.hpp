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
  input_bytes bytes{static_cast<std::uint8_t>(first)};
  bytes.insert(bytes.end(), text.begin(), text.end());
  return bytes;
}

}  // namespace perdura::fuzz
