#include "storage/s3/upload.hpp"

#include <openssl/evp.h>

#include <algorithm>
#include <array>

namespace perdura::storage::s3 {
namespace {

std::string base64_of(std::string_view bytes) {
  std::string text(4 * ((bytes.size() + 2) / 3) + 1, '\0');
  const int size =
      EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                      reinterpret_cast<const unsigned char*>(bytes.data()), static_cast<int>(bytes.size()));
  text.resize(static_cast<std::size_t>(size));
  return text;
}

std::string hex_of(std::string_view bytes) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  return text;
}

// Whether what lies there now is what an attempt of ours, whose answer was lost, has put.
result<bool> is_ours(client& c, const std::string& name, std::string_view bytes, const md5_text& md5) {
  const auto head = c.send({"HEAD", c.key_of(name)});
  if (!head) return head.failure();
  if (!head->is_success()) return c.failure_of("look at " + name, *head);
  if (head->reply.header("content-length") != std::to_string(bytes.size())) return false;
  if (const auto match = compare_etag(head->reply, md5.hex); match != tag_match::unknown)
    return match == tag_match::equal;
  s3_request request{"GET", c.key_of(name)};
  request.text_bytes_max = bytes.size();
  const auto there = c.send(request);
  if (!there) return there.failure();
  if (!there->is_success()) return c.failure_of("read " + name, *there);
  return there->reply.text == bytes;
}

}  // namespace

md5_text md5_of(std::string_view bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, EVP_md5(), nullptr) != 1) return {};
  std::string raw(reinterpret_cast<const char*>(digest.data()), size);
  return {hex_of(raw), base64_of(raw), raw};
}

std::string composite_etag(const std::vector<md5_text>& parts) {
  std::string all;
  for (const auto& part : parts) all += part.raw;
  const auto whole = md5_of(all);
  return whole.hex.empty() ? "" : whole.hex + "-" + std::to_string(parts.size());
}

tag_match compare_etag(const http_reply& reply, const std::string& expected) {
  auto tag = reply.header("etag");
  std::erase(tag, '"');
  const auto digits = tag.substr(0, tag.find('-'));
  const bool is_digest = digits.size() == 32 && digits.find_first_not_of("0123456789abcdef") == digits.npos;
  if (expected.empty() || !is_digest || reply.header("x-amz-server-side-encryption").starts_with("aws:kms"))
    return tag_match::unknown;
  return tag == expected ? tag_match::equal : tag_match::different;
}

std::uint64_t part_size_for(std::uint64_t bytes, std::uint64_t part_bytes) {
  constexpr std::uint64_t mebibyte = std::uint64_t{1} << 20;
  const std::uint64_t least = (bytes + part_number_max - 1) / part_number_max;
  return std::max(part_bytes, (least + mebibyte - 1) / mebibyte * mebibyte);
}

result<void> put_bytes(client& c, const std::string& name, std::string_view bytes, put_mode mode) {
  const auto md5 = md5_of(bytes);
  s3_request request{"PUT", c.key_of(name)};
  request.body = bytes;
  if (!md5.base64.empty()) request.headers.emplace_back("content-md5", md5.base64);
  if (mode == put_mode::if_absent && c.options().has_conditional_puts) {
    request.headers.emplace_back("if-none-match", "*");
    request.is_once = true;
  }
  request.judge = [&md5](const http_reply& reply) -> std::optional<attempt> {
    if (compare_etag(reply, md5.hex) != tag_match::different) return std::nullopt;
    return attempt{fate::broken, 0, {}, {}};
  };
  const auto answer = c.send(request);
  if (!answer) return answer.failure();
  if (answer->is_success()) return {};
  if (answer->reply.status == 412 && answer->is_ambiguous) {
    const auto same = is_ours(c, name, bytes, md5);
    if (!same) return same.failure();
    if (*same) return {};
  }
  return c.failure_of("put " + name, *answer);
}

}  // namespace perdura::storage::s3
