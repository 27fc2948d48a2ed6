#include "storage/manifest.hpp"
#include "tests/fuzz/scratch.hpp"

namespace perdura::fuzz {
namespace {

std::string sealed(const std::string& body) {
  return body + "\nsha256 " + to_string(storage::hash_of(body)) + "\n";
}

}  // namespace

bool run_manifest(input bytes) {
  if (bytes.empty()) return false;
  const auto rest = text_of(bytes.subspan(1));
  const auto text = bytes[0] % 2 == 0 ? rest : sealed(rest);
  const auto m = storage::decode_manifest(text);
  if (!m) {
    PERDURA_CHECK(!m.failure().message.empty(), "a refusal says why");
    return false;
  }
  PERDURA_CHECK(storage::encode(*m) == text, "there is one text for a manifest");
  PERDURA_CHECK(storage::validate(*m).has_value(), "what is decoded is valid");
  for (std::uint32_t t = 0; t < m->tiles.size(); ++t)
    for (const auto& array : m->arrays)
      PERDURA_CHECK(m->find(tile_id(t), array.kind) != nullptr, "every tile has every array");
  return true;
}

std::vector<input_bytes> manifest_seeds() {
  auto with_chunks = storage::empty_manifest(storage::at_step(7, 1));
  for (std::uint32_t t = 0; t < 2; ++t)
    for (const auto& array : with_chunks.arrays) {
      const std::uint64_t size = std::uint64_t{with_chunks.tiles[t].size} * array.element_bytes;
      storage::chunk_record r;
      r.hash = storage::hash_of(std::to_string(t));
      r.pack = to_string(storage::pack_name{storage::writer_a, t + 1});
      r.offset = 64;
      r.stored_size = r.decoded_size = size;
      with_chunks.chunks.push_back({tile_id(t), array.kind, r});
    }
  auto with_tensors = with_chunks;
  with_tensors.tensors = {{"a.weight", {2, 5}, 0}, {"b.bias", {6}, 10}};
  std::vector<input_bytes> seeds;
  for (const auto& m : {with_chunks, with_tensors}) {
    const auto text = storage::encode(m);
    seeds.push_back(bytes_of(0, text));
    seeds.push_back(bytes_of(1, text.substr(0, text.find('\n'))));
  }
  return seeds;
}

}  // namespace perdura::fuzz
