#include "storage/safetensors/tensor_folder.hpp"
#include "storage/safetensors/writer.hpp"
#include "tests/fuzz/scratch.hpp"

namespace perdura::fuzz {
namespace {

using namespace safetensors;

constexpr const char* shard = "model-1.safetensors";

void check_header(const header& h, std::uint64_t data_bytes) {
  std::uint64_t next = 0;
  for (const auto& t : h.tensors) {
    PERDURA_CHECK(t.begin == next && t.end >= t.begin && t.end <= data_bytes,
                  "no gap, no overlap, in the file");
    const auto bytes = bytes_for(t.type, t.shape);
    PERDURA_CHECK(bytes && *bytes == t.bytes(), "as long as its elements");
    next = t.end;
  }
  PERDURA_CHECK(next == data_bytes, "no byte belongs to nobody");
}

// What was read can be written, and is the same when it is read again.
void check_again(header h) {
  if (!lay_out(h)) return;  // an empty name, which is read but not written
  const auto text = encode_header(h);
  PERDURA_CHECK(text.has_value() && text->size() % size_bytes == 0, "a header that was read can be written");
  const auto again = parse_header(std::string_view(*text).substr(size_bytes), h.data_bytes());
  PERDURA_CHECK(again && again->metadata == h.metadata && again->tensors.size() == h.tensors.size(),
                "and says the same");
}

bool run_header(input bytes) {
  if (bytes.empty()) return false;
  const std::uint64_t data_bytes = bytes[0];
  const auto h = parse_header(text_of(bytes.subspan(1)), data_bytes);
  if (!h) return false;
  check_header(*h, data_bytes);
  check_again(*h);
  return true;
}

bool run_file(input bytes) {
  const auto path = scratch() / "one.safetensors";
  storage::write_file(path, text_of(bytes));
  const auto file = reader::open(path);
  if (!file) return false;
  check_header(file->contents(), file->contents().data_bytes());
  for (const auto& t : file->contents().tensors) {
    PERDURA_CHECK(file->find(t.name) == &t, "every tensor is found by its name");
    const auto values = file->read(t);
    PERDURA_CHECK(values && values->size() == t.bytes(), "every tensor can be read");
  }
  return true;
}

bool run_index(input bytes) {
  const auto folder = scratch() / "index";
  if (!std::filesystem::exists(folder / shard)) {
    std::filesystem::create_directories(folder);
    header h;
    h.tensors = {{"a", dtype::u8, {2}, 0, 0}, {"b", dtype::u8, {}, 0, 0}};
    auto out = writer::create(folder / shard, h).value();
    out.append("a", std::vector<std::byte>(2)).value();
    out.append("b", std::vector<std::byte>(1)).value();
    out.finish().value();
  }
  storage::write_file(folder / "model.safetensors.index.json", text_of(bytes));
  const auto all = tensor_folder::open(folder);
  if (!all) return false;
  const auto names = all->names();
  PERDURA_CHECK(names == std::vector<std::string>({"a", "b"}), "index and shards agree");
  return true;
}

}  // namespace

bool run_safetensors(input bytes) {
  if (bytes.empty()) return false;
  const auto rest = bytes.subspan(1);
  if (bytes[0] % 3 == 0) return run_header(rest);
  return bytes[0] % 3 == 1 ? run_file(rest) : run_index(rest);
}

std::vector<input_bytes> safetensors_seeds() {
  const auto path = scratch() / "seed.safetensors";
  header h;
  h.metadata = {{"format", "pt"}, {"a \"b\"", "\xc3\xa9\n"}};
  h.tensors = {{"w", dtype::f32, {2, 3}, 0, 0},
               {"empty", dtype::bf16, {4, 0}, 0, 0},
               {"flag", dtype::boolean, {}, 0, 0},
               {"n", dtype::i64, {1}, 0, 0}};
  auto out = writer::create(path, h, if_there::replace).value();
  for (const auto& t : out.contents().tensors) out.append(t.name, storage::some_bytes(t.bytes(), 1)).value();
  out.finish().value();
  const auto file = storage::read_file(path);
  const auto data_bytes = static_cast<char>(24 + 1 + 8);  // of w, flag and n
  const auto header_text =
      file.substr(size_bytes, file.size() - size_bytes - static_cast<std::size_t>(data_bytes));
  return {
      bytes_of(0, data_bytes + header_text), bytes_of(0, std::string(1, '\0') + "{}"), bytes_of(1, file),
      bytes_of(
          2,
          R"({"metadata": {"total_size": 3}, "weight_map": {"a": "model-1.safetensors", "b": "model-1.safetensors"}})")};
}

}  // namespace perdura::fuzz
