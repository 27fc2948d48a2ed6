#include "storage/safetensors/header.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <set>

namespace perdura::safetensors {
namespace {

namespace json = boost::json;

constexpr std::size_t name_bytes_max = 4096;
constexpr std::size_t shown_max = 100;
constexpr std::uint64_t bytes_max = INT64_MAX;  // what a file's offset can be

std::string quoted(std::string_view name) { return "'" + std::string(name.substr(0, shown_max)) + "'"; }

error corrupt(const std::string& why) { return {errc::corrupt, why}; }

std::string_view text_of(const json::string& s) { return {s.data(), s.size()}; }

result<std::map<std::string, std::string>> read_metadata(const json::value& v) {
  const auto* object = v.if_object();
  if (object == nullptr) return corrupt("__metadata__ is not an object");
  std::map<std::string, std::string> metadata;
  for (const auto& [key, value] : *object) {
    const auto* text = value.if_string();
    if (text == nullptr)
      return corrupt("__metadata__: the value of " + quoted({key.data(), key.size()}) + " is not a text");
    metadata.emplace(std::string(key), std::string(text_of(*text)));
  }
  return metadata;
}

// A list of whole numbers from 0 on.
result<std::vector<std::uint64_t>> read_numbers(const json::value& v, const std::string& what) {
  const auto* list = v.if_array();
  if (list == nullptr) return corrupt(what + " is not a list");
  std::vector<std::uint64_t> numbers;
  for (const auto& item : *list) {
    boost::system::error_code inexact;
    const bool is_whole = item.is_int64() || item.is_uint64();
    const auto n = is_whole ? item.to_number<std::uint64_t>(inexact) : 0;
    if (!is_whole || inexact) return corrupt(what + " holds something else than whole numbers from 0 on");
    numbers.push_back(n);
  }
  return numbers;
}

result<tensor_info> read_tensor(std::string_view name, const json::value& v) {
  const std::string what = "tensor " + quoted(name);
  if (name.size() > name_bytes_max)
    return error{errc::exhausted,
                 what + "...: a name has at most " + std::to_string(name_bytes_max) + " bytes"};
  const auto* object = v.if_object();
  if (object == nullptr) return corrupt(what + " is not an object");
  for (const auto& [key, value] : *object)
    if (key != "dtype" && key != "shape" && key != "data_offsets")
      return corrupt(what + " has a field " + quoted({key.data(), key.size()}) +
                     ": the format knows dtype, shape and data_offsets");
  if (object->size() != 3) return corrupt(what + " lacks one of dtype, shape and data_offsets");
  tensor_info t;
  t.name = name;
  const auto* type = object->at("dtype").if_string();
  const auto parsed = type == nullptr ? std::nullopt : parse_dtype(text_of(*type));
  if (!parsed)
    return corrupt(what + ": its dtype " +
                   (type == nullptr ? "is no text" : quoted(text_of(*type)) + " is unknown"));
  t.type = *parsed;
  auto shape = read_numbers(object->at("shape"), "the shape of " + what);
  if (!shape) return shape.failure();
  t.shape = *std::move(shape);
  const auto offsets = read_numbers(object->at("data_offsets"), "data_offsets of " + what);
  if (!offsets) return offsets.failure();
  if (offsets->size() != 2) return corrupt("data_offsets of " + what + " is not a pair");
  t.begin = (*offsets)[0];
  t.end = (*offsets)[1];
  return t;
}

// One behind the other, each as long as its elements, to the end.
result<void> check_places(const std::vector<tensor_info>& tensors, std::uint64_t data_bytes) {
  std::uint64_t next = 0;
  for (const auto& t : tensors) {
    const std::string what = "tensor " + quoted(t.name);
    if (t.begin != next || t.end < t.begin)
      return corrupt(what + " has the bytes [" + std::to_string(t.begin) + ", " + std::to_string(t.end) +
                     "), but byte " + std::to_string(next) +
                     " comes next: tensors must not overlap or leave gaps");
    const auto bytes = bytes_for(t.type, t.shape);
    if (!bytes) return error{bytes.failure().code, what + ": " + bytes.failure().message};
    if (*bytes != t.bytes())
      return corrupt(what + " has " + std::to_string(t.bytes()) + " bytes, but " + to_string(t.type) + " " +
                     shape_text(t.shape) + " takes " + std::to_string(*bytes));
    next = t.end;
  }
  if (next == data_bytes) return {};
  return corrupt("its tensors take " + std::to_string(next) + " bytes, but " + std::to_string(data_bytes) +
                 " follow the header: the file is cut off or something was appended");
}

json::object to_json(const tensor_info& t) {
  return {{"dtype", to_string(t.type)},
          {"shape", json::array(t.shape.begin(), t.shape.end())},
          {"data_offsets", {t.begin, t.end}}};
}

}  // namespace

std::string shape_text(const std::vector<std::uint64_t>& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + "]";
}

result<std::uint64_t> bytes_for(dtype type, std::span<const std::uint64_t> shape) {
  if (shape.size() > rank_max)
    return error{errc::exhausted, "a shape has at most " + std::to_string(rank_max) + " dimensions"};
  std::uint64_t bytes = bytes_of(type);
  for (const auto n : shape) {
    if (n != 0 && bytes > bytes_max / n)
      return error{errc::exhausted, "its shape has more elements than a file can hold"};
    bytes *= n;
  }
  return bytes;
}

result<header> parse_header(std::string_view text, std::uint64_t data_bytes) {
  if (text.empty() || text.front() != '{') return corrupt("the header does not begin with '{'");
  const auto root = parse_strictly(text);
  if (!root) return error{root.failure().code, "the header: " + root.failure().message};
  header h;
  for (const auto& [key, value] : root->as_object()) {
    const std::string_view name{key.data(), key.size()};
    if (name == metadata_key) {
      auto metadata = read_metadata(value);
      if (!metadata) return metadata.failure();
      h.metadata = *std::move(metadata);
      continue;
    }
    auto tensor = read_tensor(name, value);
    if (!tensor) return tensor.failure();
    h.tensors.push_back(*std::move(tensor));
  }
  std::sort(h.tensors.begin(), h.tensors.end(), [](const tensor_info& a, const tensor_info& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  if (auto fit = check_places(h.tensors, data_bytes); !fit) return fit.failure();
  return h;
}

result<void> lay_out(header& h) {
  if (h.tensors.size() > tensors_max)
    return error{errc::exhausted, "a file has at most " + std::to_string(tensors_max) + " tensors"};
  std::stable_sort(h.tensors.begin(), h.tensors.end(), [](const tensor_info& a, const tensor_info& b) {
    return bytes_of(a.type) > bytes_of(b.type);
  });
  std::set<std::string_view> names;
  std::uint64_t next = 0;
  for (auto& t : h.tensors) {
    if (t.name.empty() || t.name.size() > name_bytes_max || t.name == metadata_key ||
        !names.insert(t.name).second)
      return error{errc::invalid_argument, "a tensor cannot be named " + quoted(t.name) +
                                               ": the name is empty, too long, taken or reserved"};
    const auto bytes = bytes_for(t.type, t.shape);
    if (!bytes)
      return error{bytes.failure().code, "tensor " + quoted(t.name) + ": " + bytes.failure().message};
    if (*bytes > bytes_max - next)
      return error{errc::exhausted, "the tensors together are larger than a file can be"};
    t.begin = next;
    t.end = next += *bytes;
  }
  return {};
}

result<std::string> encode_header(const header& h) {
  json::object root;
  if (!h.metadata.empty()) {
    json::object metadata;
    for (const auto& [key, value] : h.metadata) metadata.emplace(key, value);
    root.emplace(metadata_key, std::move(metadata));
  }
  for (const auto& t : h.tensors) root.emplace(t.name, to_json(t));
  std::string text = json::serialize(root);
  text.append((size_bytes - text.size() % size_bytes) % size_bytes, ' ');
  if (text.size() > header_bytes_max)
    return error{errc::exhausted, "the header of " + std::to_string(text.size()) + " bytes is larger than " +
                                      std::to_string(header_bytes_max)};
  // What cannot be read again is not written: names that are no UTF-8.
  if (const auto read = parse_header(text, h.data_bytes()); !read)
    return error{errc::invalid_argument, read.failure().message};
  std::string size(size_bytes, '\0');
  for (std::size_t i = 0; i < size_bytes; ++i) size[i] = static_cast<char>(text.size() >> (8 * i));
  return size + text;
}

}  // namespace perdura::safetensors
