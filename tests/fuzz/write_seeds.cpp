// write_seeds FOLDER: the good files that a fuzzer starts from, in FOLDER/TARGET.
#include <cstdio>
#include <filesystem>

#include "tests/fuzz/scratch.hpp"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: write_seeds FOLDER\n");
    return 2;
  }
  for (const auto& t : perdura::fuzz::targets()) {
    const auto folder = std::filesystem::path(argv[1]) / t.name;
    std::filesystem::create_directories(folder);
    int number = 0;
    for (const auto& seed : t.seeds())
      perdura::storage::write_file(folder / ("seed-" + std::to_string(++number)),
                                   perdura::fuzz::text_of(seed));
  }
  return 0;
}
