#include "storage/s3/xml.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <pugixml.hpp>

namespace perdura::storage::s3 {
namespace {

constexpr std::size_t message_bytes_max = 300;
constexpr std::size_t token_bytes_max = 4096;  // of continuation tokens and ids
constexpr std::size_t etag_bytes_max = 256;

error refused(const std::string& why) { return {errc::corrupt, "the service's answer is refused: " + why}; }

// Compatible services call the root of ListPartsResult ListPartsResponse, among others.
bool is_named(std::string_view root, std::string_view expected) {
  constexpr std::string_view usual = "Result";
  if (root == expected) return true;
  if (!expected.ends_with(usual)) return false;
  expected.remove_suffix(usual.size());
  if (!root.starts_with(expected)) return false;
  root.remove_prefix(expected.size());
  return root == "Response" || root == "Output";
}

// Reads one text. The first flaw stays; a reader with a flaw gives empty values.
class reader {
 public:
  reader(std::string_view xml, const char* root_name) { load(xml, root_name); }

  pugi::xml_node root() const { return root_; }
  bool is_sound() const { return flaw_.empty(); }
  error failure() const { return refused(flaw_); }

  std::string text(const pugi::xml_node& of, const char* name, std::size_t bytes_max) {
    std::string value = of.child_value(name);
    if (value.size() <= bytes_max && value.find('\0') == value.npos) return value;
    flaw(std::string(name) + " is longer than " + std::to_string(bytes_max) + " bytes");
    return {};
  }
  std::string needed(const pugi::xml_node& of, const char* name, std::size_t bytes_max) {
    auto value = text(of, name, bytes_max);
    if (value.empty()) flaw(std::string("an entry has no ") + name);
    return value;
  }
  std::uint64_t number(const pugi::xml_node& of, const char* name, std::uint64_t most) {
    const auto value = needed(of, name, 20);
    std::uint64_t n{};
    const auto [end, failed] = std::from_chars(value.data(), value.data() + value.size(), n);
    if (failed == std::errc{} && end == value.data() + value.size() && n <= most) return n;
    flaw(std::string(name) + " is no number from 0 to " + std::to_string(most));
    return 0;
  }
  // The token of the next page; a page that is not the last one must have it.
  std::string next(const char* name) {
    if (std::string_view(root_.child_value("IsTruncated")) != "true") return {};
    return needed(root_, name, token_bytes_max);
  }
  // Stops at the first flaw.
  template <class Visit>
  void each(const char* name, const Visit& visit) {
    std::size_t count = 0;
    for (const auto& node : root_.children(name)) {
      if (++count > xml_entries_max) flaw("it has more than " + std::to_string(xml_entries_max) + " entries");
      if (!is_sound()) return;
      visit(node);
    }
  }
  void flaw(const std::string& why) {
    if (flaw_.empty()) flaw_ = why;
  }

 private:
  void load(std::string_view xml, const char* root_name) {
    if (xml.size() > xml_bytes_max)
      return flaw("it is longer than " + std::to_string(xml_bytes_max) + " bytes");
    // Document types are asked for so that they can be refused; pugixml expands no entities but the five.
    const auto parsed = document_.load_buffer(xml.data(), xml.size(),
                                              pugi::parse_default | pugi::parse_doctype, pugi::encoding_utf8);
    if (!parsed) return flaw(std::string("it is no XML: ") + parsed.description());
    for (const auto& node : document_.children())
      if (node.type() != pugi::node_element && node.type() != pugi::node_declaration)
        return flaw("it has a document type, or text outside of its root");
    root_ = document_.document_element();
    if (root_.next_sibling()) return flaw("it has two roots");
    if (!is_named(root_.name(), root_name))
      return flaw("its root is '" + std::string(root_.name()).substr(0, 40) + "', expected '" + root_name +
                  "'");
  }

  pugi::xml_document document_;
  pugi::xml_node root_;
  std::string flaw_;
};

std::string without_quotes(std::string etag) {
  if (etag.size() >= 2 && etag.front() == '"' && etag.back() == '"') return etag.substr(1, etag.size() - 2);
  return etag;
}

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

// Keys are asked for in this form, since XML has no way to write some of them.
std::optional<std::string> url_decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i] == '+' ? ' ' : text[i];
      continue;
    }
    const int high = i + 2 < text.size() ? digit_of(text[i + 1]) : -1;
    const int low = i + 2 < text.size() ? digit_of(text[i + 2]) : -1;
    if (high < 0 || low < 0) return std::nullopt;
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return out;
}

// A key as it is, whichever form the service chose.
std::string key_of(reader& in, const pugi::xml_node& node) {
  auto key = in.needed(node, "Key", 3 * key_bytes_max);
  if (std::string_view(in.root().child_value("EncodingType")) != "url") return key;
  auto decoded = url_decoded(key);
  if (!decoded) in.flaw("a key is not URL-encoded, though it says so");
  return decoded.value_or("");
}

std::string printable(std::string_view text, std::size_t bytes_max) {
  std::string out;
  for (const char c : text.substr(0, bytes_max)) out += c >= ' ' && c <= '~' ? c : ' ';
  return out;
}

}  // namespace

result<listing> parse_listing(std::string_view xml) {
  reader in(xml, "ListBucketResult");
  listing found;
  if (in.is_sound()) {
    in.each("Contents", [&](const pugi::xml_node& node) {
      found.entries.push_back({key_of(in, node), in.number(node, "Size", UINT64_MAX)});
    });
    found.next = in.next("NextContinuationToken");
  }
  if (!in.is_sound()) return in.failure();
  return found;
}

result<upload_listing> parse_uploads(std::string_view xml) {
  reader in(xml, "ListMultipartUploadsResult");
  upload_listing found;
  if (in.is_sound()) {
    in.each("Upload", [&](const pugi::xml_node& node) {
      found.uploads.push_back(
          {key_of(in, node), in.needed(node, "UploadId", token_bytes_max), in.text(node, "Initiated", 64)});
    });
    found.next_key = in.next("NextKeyMarker");
    found.next_id = in.next("NextUploadIdMarker");
  }
  if (!in.is_sound()) return in.failure();
  return found;
}

result<part_listing> parse_parts(std::string_view xml) {
  reader in(xml, "ListPartsResult");
  part_listing found;
  if (in.is_sound()) {
    in.each("Part", [&](const pugi::xml_node& node) {
      const auto number = static_cast<std::uint32_t>(in.number(node, "PartNumber", part_number_max));
      found.parts.push_back({number, in.number(node, "Size", UINT64_MAX),
                             without_quotes(in.needed(node, "ETag", etag_bytes_max))});
    });
    found.next = in.next("NextPartNumberMarker");
  }
  if (!in.is_sound()) return in.failure();
  return found;
}

result<std::string> parse_upload_id(std::string_view xml) {
  reader in(xml, "InitiateMultipartUploadResult");
  std::string id = in.is_sound() ? in.needed(in.root(), "UploadId", token_bytes_max) : "";
  if (!in.is_sound()) return in.failure();
  return id;
}

result<void> parse_completed(std::string_view xml) {
  const reader in(xml, "CompleteMultipartUploadResult");
  if (!in.is_sound()) return in.failure();
  return {};
}

std::string complete_request(const std::vector<uploaded_part>& parts) {
  std::string text = "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">";
  for (const auto& part : parts) {
    text += "<Part><PartNumber>" + std::to_string(part.number) + "</PartNumber><ETag>&quot;";
    // Copied from an answer: what would have a meaning in XML is never in a real one.
    for (const char c : part.etag)
      if (c > ' ' && c <= '~' && c != '<' && c != '>' && c != '&' && c != '"') text += c;
    text += "&quot;</ETag></Part>";
  }
  return text + "</CompleteMultipartUpload>";
}

service_error parse_error(std::string_view xml) {
  if (xml.size() > xml_bytes_max) return {};
  reader in(xml, "Error");
  if (!in.is_sound()) return {};
  const auto root = in.root();
  std::string code = root.child_value("Code");
  if (code.size() > 64 || !std::all_of(code.begin(), code.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.';
      }))
    code.clear();
  return {code, printable(root.child_value("Message"), message_bytes_max)};
}

}  // namespace perdura::storage::s3
