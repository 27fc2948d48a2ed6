#include <doctest/doctest.h>
#include <unistd.h>

#include <set>

#include "storage/safetensors/tensor_folder.hpp"
#include "storage/safetensors/writer.hpp"
#include "tests/unit/storage_fixture.hpp"

using namespace perdura;
using namespace perdura::safetensors;
using perdura::storage::read_file;
using perdura::storage::some_bytes;
using perdura::storage::temporary_folder;
using perdura::storage::write_file;
namespace fs = std::filesystem;

namespace {

std::string file_of(const std::string& header, const std::string& data) {
  std::string size(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) size[i] = static_cast<char>(header.size() >> (8 * i));
  return size + header + data;
}

std::string entry(const std::string& name, const std::string& type, const std::string& shape,
                  const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + type + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets +
         "}";
}

std::string why_refused(const std::string& header, std::uint64_t data_bytes) {
  const auto h = parse_header(header, data_bytes);
  return h ? "" : h.failure().message;
}

bool says(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

fs::path write_tensors(const fs::path& path, const std::vector<tensor_info>& tensors) {
  header h;
  h.tensors = tensors;
  auto out = writer::create(path, h).value();
  std::uint32_t seed = 0;
  for (const auto& t : out.contents().tensors) out.append(t.name, some_bytes(t.bytes(), ++seed)).value();
  out.finish().value();
  return path;
}

std::set<std::string> files_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename().string());
  return names;
}

}  // namespace

TEST_CASE("every element type, no dimension and empty tensors come back bit for bit") {
  temporary_folder folder;
  header h;
  h.metadata = {{"format", "pt"}, {"quoted \"\\\n", "\xc3\xa9"}};
  for (const auto type : all_dtypes) {
    const std::string name = to_string(type);
    h.tensors.push_back({name, type, {3, 5}, 0, 0});
    h.tensors.push_back({name + " alone", type, {}, 0, 0});
    h.tensors.push_back({name + " empty", type, {2, 0, 4}, 0, 0});
  }
  auto out = writer::create(folder.path() / "a.safetensors", h).value();
  std::map<std::string, std::vector<std::byte>> written;
  std::uint32_t seed = 0;
  for (const auto& t : out.contents().tensors) {
    written[t.name] = some_bytes(t.bytes(), ++seed);
    REQUIRE(out.append(t.name, written[t.name]));
  }
  REQUIRE(out.finish());

  const auto in = reader::open(folder.path() / "a.safetensors");
  REQUIRE(in);
  CHECK(in->contents().metadata == h.metadata);
  CHECK(in->contents().tensors.size() == 45);
  for (const auto& t : h.tensors) {
    const auto* found = in->find(t.name);
    REQUIRE(found != nullptr);
    CHECK(found->type == t.type);
    CHECK(found->shape == t.shape);
    CHECK(found->begin % bytes_of(t.type) == 0);
    CHECK(in->read(*found).value() == written[t.name]);
  }
}

TEST_CASE("a tensor is written and read in parts, in turns with others") {
  temporary_folder folder;
  header h;
  h.tensors = {{"a", dtype::u8, {100}, 0, 0}, {"b", dtype::u8, {50}, 0, 0}};
  const auto a = some_bytes(100, 1), b = some_bytes(50, 2);
  auto out = writer::create(folder.path() / "f", h).value();
  REQUIRE(out.append("b", std::span(b).first(20)));
  REQUIRE(out.append("a", std::span(a).first(99)));
  REQUIRE(out.append("b", std::span(b).subspan(20)));
  REQUIRE(out.append("a", std::span(a).subspan(99)));
  REQUIRE(out.finish());
  const auto in = reader::open(folder.path() / "f").value();
  std::vector<std::byte> part(30);
  REQUIRE(in.read(*in.find("a"), 70, part));
  CHECK(std::equal(part.begin(), part.end(), a.begin() + 70));
  CHECK(in.read(*in.find("b"), 21, part).failure().code == errc::invalid_argument);
  CHECK(in.read(*in.find("b")).value() == b);
}

TEST_CASE("a file has its name only when all of it is written") {
  temporary_folder folder;
  header h;
  h.tensors = {{"a", dtype::f32, {2}, 0, 0}};
  {
    auto out = writer::create(folder.path() / "f", h).value();
    REQUIRE(out.append("a", some_bytes(4, 1)));
    CHECK(says(out.finish().failure().message, "'a'"));
    CHECK(out.append("a", some_bytes(5, 1)).failure().code == errc::invalid_argument);
    CHECK(out.append("b", some_bytes(1, 1)).failure().code == errc::invalid_argument);
    CHECK_FALSE(fs::exists(folder.path() / "f"));
  }
  CHECK(files_in(folder.path()).empty());
}

TEST_CASE("a file that is there is replaced only when that is asked for") {
  temporary_folder folder;
  const auto path = write_tensors(folder.path() / "f", {{"a", dtype::u8, {1}, 0, 0}});
  CHECK(writer::create(path, {}).failure().code == errc::already_exists);
  auto out = writer::create(path, {}, if_there::replace).value();
  CHECK(reader::open(path)->find("a") != nullptr);
  REQUIRE(out.finish());
  CHECK(reader::open(path)->contents().tensors.empty());
}

TEST_CASE("tensors with gaps, overlaps or other sizes than their elements take are refused by name") {
  const auto a = entry("a", "F32", "[2]", "[0,8]");
  CHECK(why_refused("{" + a + "}", 8).empty());
  CHECK(says(why_refused("{" + a + "," + entry("b", "U8", "[1]", "[9,10]") + "}", 10), "'b'"));
  CHECK(says(why_refused("{" + a + "," + entry("b", "U8", "[1]", "[7,8]") + "}", 8), "'b'"));
  CHECK(
      why_refused(
          "{" + a + "," + entry("b", "U8", "[0]", "[0,0]") + "," + entry("c", "U8", "[0]", "[8,8]") + "}", 8)
          .empty());
  CHECK(says(why_refused("{" + entry("a", "F32", "[2]", "[0,7]") + "}", 7), "takes 8"));
  CHECK(says(why_refused("{" + entry("a", "F32", "[2]", "[8,0]") + "}", 8), "'a'"));
  CHECK(says(why_refused("{" + a + "}", 9), "9 follow"));
  CHECK(says(why_refused("{" + a + "}", 7), "7 follow"));
  CHECK(says(why_refused("{" + entry("a", "U8", "[4294967296,4294967296]", "[0,0]") + "}", 0),
             "more elements"));
  CHECK(says(why_refused("{" + entry("a", "U8", "[18446744073709551615,0]", "[0,0]") + "}", 0),
             "more elements"));
}

TEST_CASE("what a header may not hold is refused with a reason") {
  const auto a = entry("a", "F32", "[2]", "[0,8]");
  CHECK(says(why_refused("", 0), "'{'"));
  CHECK(says(why_refused(" {}", 0), "'{'"));
  CHECK(why_refused("{}  \t\n", 0).empty());
  CHECK(says(why_refused("{}x", 0), "byte 2"));
  CHECK(says(why_refused("{", 0), "JSON"));
  CHECK(says(why_refused("{" + a + "," + a + "}", 8), "twice"));
  CHECK(
      says(why_refused(R"({"a":{"dtype":"U8","dtype":"U8","shape":[],"data_offsets":[0,1]}})", 1), "twice"));
  CHECK(says(why_refused(R"({"__metadata__":{"k":"v","k":"w"}})", 0), "twice"));
  CHECK(says(why_refused(R"({"__metadata__":{"k":1}})", 0), "'k'"));
  CHECK(says(why_refused(R"({"__metadata__":[]})", 0), "__metadata__"));
  CHECK(says(why_refused("{" + entry("a", "F33", "[2]", "[0,8]") + "}", 8), "'F33'"));
  CHECK(says(why_refused("{" + entry("a", "f32", "[2]", "[0,8]") + "}", 8), "'f32'"));
  for (const auto* shape : {"[-2]", "[2.0]", "[2e0]", "[\"2\"]", "2", "[[2]]", "[18446744073709551616]"})
    CHECK_FALSE(why_refused("{" + entry("a", "F32", shape, "[0,8]") + "}", 8).empty());
  CHECK(says(why_refused("{" + entry("a", "F32", "[2]", "[0]") + "}", 8), "pair"));
  CHECK(says(why_refused(R"({"a":{"dtype":"U8","shape":[]}})", 1), "lacks"));
  CHECK(says(why_refused(R"({"a":{"dtype":"U8","shape":[],"data_offsets":[0,1],"more":1}})", 1), "'more'"));
  CHECK_FALSE(why_refused("{\"\xff\":" + entry("a", "U8", "[]", "[0,1]").substr(4) + "}", 1).empty());
  std::string shape = "[1";
  for (std::size_t i = 0; i < rank_max; ++i) shape += ",1";
  CHECK_FALSE(why_refused("{" + entry("a", "U8", shape + "]", "[0,1]") + "}", 1).empty());
}

TEST_CASE("a header that claims more than the file has or than is read is refused before anything is read") {
  temporary_folder folder;
  const auto path = folder.path() / "f";
  write_file(path, "1234567");
  CHECK(says(reader::open(path).failure().message, "too few"));
  for (const auto& size : {std::string("\x01\0\0\0\0\0\0\0", 8), std::string(8, '\xff')}) {
    write_file(path, size);
    const auto refused = reader::open(path);
    REQUIRE_FALSE(refused);
    CHECK(refused.failure().code == errc::corrupt);
    CHECK(says(refused.failure().message, path.string()));
  }
  std::string size(8, '\0');
  size[3] = 4;  // 64 MiB
  write_file(path, size);
  REQUIRE(::truncate(path.c_str(), off_t{128} << 20) == 0);
  CHECK(reader::open(path).failure().code == errc::exhausted);
}

TEST_CASE("a header need not be aligned to be read") {
  temporary_folder folder;
  write_file(folder.path() / "f", file_of("{" + entry("a", "U8", "[3]", "[0,3]") + "}", "xyz"));
  const auto in = reader::open(folder.path() / "f").value();
  CHECK(in.read(*in.find("a")).value().front() == std::byte{'x'});
}

TEST_CASE("a file that is cut after it was opened is found when it is read") {
  temporary_folder folder;
  const auto path = write_tensors(folder.path() / "f", {{"a", dtype::u8, {100}, 0, 0}});
  const auto in = reader::open(path).value();
  REQUIRE(::truncate(path.c_str(), 100) == 0);
  CHECK(in.read(*in.find("a")).failure().code == errc::corrupt);
  CHECK(reader::open(path).failure().code == errc::corrupt);
}

TEST_CASE("names that cannot be read again are not written") {
  temporary_folder folder;
  const auto refused = [&](std::vector<tensor_info> tensors) {
    header h;
    h.tensors = std::move(tensors);
    const auto made = writer::create(folder.path() / "f", h);
    return !made && made.failure().code == errc::invalid_argument;
  };
  CHECK(refused({{"", dtype::u8, {}, 0, 0}}));
  CHECK(refused({{"__metadata__", dtype::u8, {}, 0, 0}}));
  CHECK(refused({{"a", dtype::u8, {}, 0, 0}, {"a", dtype::u8, {}, 0, 0}}));
  CHECK(refused({{"\xff", dtype::u8, {}, 0, 0}}));
  CHECK(files_in(folder.path()).empty());
}

TEST_CASE("shards are found by their index, and each tensor in its own") {
  temporary_folder folder;
  write_tensors(folder.path() / "m-1.safetensors", {{"a", dtype::u8, {4}, 0, 0}});
  write_tensors(folder.path() / "m-2.safetensors",
                {{"b", dtype::u8, {2}, 0, 0}, {"c", dtype::u8, {1}, 0, 0}});
  const auto index = folder.path() / "diffusion_pytorch_model.safetensors.index.json";
  const auto open_with = [&](const std::string& map) {
    write_file(index, "{\"metadata\": {\"total_size\": 7}, \"weight_map\": {" + map + "}}");
    return tensor_folder::open(folder.path());
  };
  const std::string a = R"("a": "m-1.safetensors")", b = R"("b": "m-2.safetensors")",
                    c = R"("c": "m-2.safetensors")";
  const auto all = open_with(a + "," + b + "," + c);
  REQUIRE(all);
  CHECK(all->names() == std::vector<std::string>{"a", "b", "c"});
  std::vector<std::byte> two(2);
  REQUIRE(all->read("b", 0, two));
  CHECK(two == some_bytes(2, 1));
  CHECK(all->read("d", 0, two).failure().code == errc::not_found);

  CHECK(says(open_with(a + "," + b).failure().message, "'c'"));
  CHECK(says(open_with(a + "," + b + "," + c + R"(,"d": "m-1.safetensors")").failure().message, "'d'"));
  CHECK(
      says(open_with(R"("a": "m-2.safetensors")" + std::string(",") + b + "," + c).failure().message, "'a'"));
  CHECK(open_with(a + "," + b + "," + c + R"(,"d": "m-3.safetensors")").failure().code == errc::not_found);
  CHECK(says(open_with(a + "," + a).failure().message, "twice"));
  for (const auto* escape : {"../m-1.safetensors", "/m-1.safetensors", "x/m-1.safetensors", ".safetensors",
                             ".m.safetensors", "m-1.bin", "m\\u0000.safetensors"}) {
    const auto refused = open_with("\"a\": \"" + std::string(escape) + "\"");
    REQUIRE_FALSE(refused);
    CHECK(refused.failure().code == errc::corrupt);
  }
}

TEST_CASE("a folder without weights says what was looked for") {
  temporary_folder folder;
  const auto none = tensor_folder::open(folder.path());
  REQUIRE_FALSE(none);
  CHECK(none.failure().code == errc::not_found);
  CHECK(says(none.failure().message, "model.safetensors"));
  write_tensors(folder.path() / "model.safetensors", {{"a", dtype::u8, {4}, 0, 0}});
  CHECK(tensor_folder::open(folder.path())->names().size() == 1);
  CHECK(tensor_folder::open(folder.path() / "model.safetensors")->names().size() == 1);
}
