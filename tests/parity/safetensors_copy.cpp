// safetensors_copy IN OUT: reads all of a file and writes it anew, for safetensors_parity.py.
#include <cstdio>

#include "storage/safetensors/reader.hpp"
#include "storage/safetensors/writer.hpp"

using namespace perdura;
using namespace perdura::safetensors;

namespace {

result<void> copy(const char* from, const char* to) {
  const auto in = reader::open(from);
  if (!in) return in.failure();
  auto out = writer::create(to, in->contents());
  if (!out) return out.failure();
  for (const auto& t : in->contents().tensors) {
    const auto bytes = in->read(t);
    if (!bytes) return bytes.failure();
    if (auto written = out->append(t.name, *bytes); !written) return written;
  }
  return out->finish();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: safetensors_copy IN OUT\n");
    return 2;
  }
  const auto done = copy(argv[1], argv[2]);
  if (!done) std::fprintf(stderr, "%s\n", done.failure().message.c_str());
  return done ? 0 : 1;
}
