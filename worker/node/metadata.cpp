#include "worker/node/metadata.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <cctype>
#include <cstring>
#include <string>

namespace perdura::worker::node {
namespace {

namespace json = boost::json;
using std::chrono::milliseconds;
using answer = result<std::optional<notice>>;

constexpr long status_ok = 200, status_no_content = 204, status_unauthorized = 401, status_not_found = 404;
constexpr std::chrono::seconds gcp_held_open{10};

error rubbish(const std::string& url, const std::string& what) {
  return {errc::corrupt, url + " is not understood: " + what};
}

error unexpected(const std::string& url, long status) {
  return rubbish(url, "it answers with status " + std::to_string(status));
}

// May be put into a header or an address as it is.
bool is_plain(const std::string& token) {
  constexpr auto others = "=_-.~+/";
  return !token.empty() && std::all_of(token.begin(), token.end(), [&](unsigned char c) {
    return std::isalnum(c) != 0 || std::strchr(others, c) != nullptr;
  });
}

// "" if there is no such text.
std::string text_at(const json::object& o, const char* key) {
  const auto* value = o.if_contains(key);
  return value != nullptr && value->is_string() ? std::string(value->as_string()) : "";
}

class service : public metadata_service {
 public:
  service(const preemption_config& c, const char* usual)
      : base_(c.metadata_url.empty() ? usual : c.metadata_url), grace_(c.grace), timeout_(c.request_timeout) {
    while (base_.ends_with('/')) base_.pop_back();
  }

 protected:
  http_request get(const std::string& path, std::vector<std::string> headers) const {
    return {"GET", base_ + path, std::move(headers), timeout_};
  }
  // Without a time that can be read it is the usual one.
  milliseconds until(const std::string& time, wall_time now) const {
    const auto at = parse_time(time);
    return at ? time_left(*at, now) : grace_;
  }

  std::string base_;
  const milliseconds grace_;
  const milliseconds timeout_;
};

class aws final : public service {
 public:
  explicit aws(const preemption_config& c) : service(c, "http://169.254.169.254") {}

  answer ask(const http_sender& send, wall_time now) override {
    if (token_.empty()) {
      const auto token = send(
          {"PUT", base_ + "/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds: 21600"}, timeout_});
      if (!token) return token.failure();
      if (token->status != status_ok) return unexpected(base_ + "/latest/api/token", token->status);
      if (!is_plain(token->body)) return rubbish(base_ + "/latest/api/token", "it gives no token");
      token_ = token->body;
      is_proven_ = false;
    }
    const auto request =
        get("/latest/meta-data/spot/instance-action", {"X-aws-ec2-metadata-token: " + token_});
    const auto reply = send(request);
    if (!reply) return reply.failure();
    const bool has_expired = reply->status == status_unauthorized && is_proven_;
    if (reply->status == status_unauthorized) token_.clear();  // the next one is asked with anew
    if (reply->status == status_not_found || has_expired) {
      is_proven_ = true;
      return std::optional<notice>{};
    }
    if (reply->status != status_ok) return unexpected(request.url, reply->status);
    boost::system::error_code failed;
    const auto body = json::parse(reply->body, failed);
    if (failed || !body.is_object()) return rubbish(request.url, "no JSON object");
    const auto action = text_at(body.as_object(), "action");
    if (action.empty()) return rubbish(request.url, "no \"action\"");
    const auto time = text_at(body.as_object(), "time");
    return std::optional(
        notice{until(time, now), "the metadata service (aws) says " + action + " at " + time});
  }

 private:
  std::string token_;
  bool is_proven_ = false;  // it has been accepted before
};

class gcp final : public service {
 public:
  explicit gcp(const preemption_config& c) : service(c, "http://metadata.google.internal") {}

  answer ask(const http_sender& send, wall_time) override {
    auto request = get("/computeMetadata/v1/instance/preempted", {"Metadata-Flavor: Google"});
    // With what was seen last the service answers when it is another, or after some time.
    if (!etag_.empty()) {
      request.url += "?wait_for_change=true&timeout_sec=" + std::to_string(gcp_held_open.count()) +
                     "&last_etag=" + etag_;
      request.timeout += gcp_held_open;
    }
    const auto reply = send(request);
    etag_.clear();
    if (!reply) return reply.failure();
    if (reply->status != status_ok) return unexpected(request.url, reply->status);
    if (reply->body.starts_with("TRUE"))
      return std::optional(notice{grace_, "the metadata service (gcp) says that the instance is preempted"});
    if (!reply->body.starts_with("FALSE")) return rubbish(request.url, "neither TRUE nor FALSE");
    if (is_plain(reply->etag)) etag_ = reply->etag;
    return std::optional<notice>{};
  }

 private:
  std::string etag_;
};

class azure final : public service {
 public:
  explicit azure(const preemption_config& c) : service(c, "http://169.254.169.254") {}

  answer ask(const http_sender& send, wall_time now) override {
    const auto request = get("/metadata/scheduledevents?api-version=2020-07-01", {"Metadata: true"});
    const auto reply = send(request);
    if (!reply) return reply.failure();
    if (reply->status != status_ok) return unexpected(request.url, reply->status);
    boost::system::error_code failed;
    const auto body = json::parse(reply->body, failed);
    const auto* events = failed || !body.is_object() ? nullptr : body.as_object().if_contains("Events");
    if (events == nullptr || !events->is_array()) return rubbish(request.url, "no list of \"Events\"");
    for (const auto& e : events->as_array()) {
      if (!e.is_object()) return rubbish(request.url, "an event that is no object");
      const auto type = text_at(e.as_object(), "EventType");
      if ((type != "Preempt" && type != "Terminate") || !is_ours(send, e.as_object())) continue;
      const auto time = text_at(e.as_object(), "NotBefore");  // empty once it has begun
      return std::optional(
          notice{until(time, now), "the metadata service (azure) says " + type + " not before " + time});
    }
    return std::optional<notice>{};
  }

 private:
  // All machines of a set see the events of each. Who cannot learn its name takes them all as its own.
  bool is_ours(const http_sender& send, const json::object& event) {
    if (name_.empty()) {
      const auto reply =
          send(get("/metadata/instance/compute/name?api-version=2021-02-01&format=text", {"Metadata: true"}));
      if (reply && reply->status == status_ok) name_ = reply->body;
    }
    const auto* resources = event.if_contains("Resources");
    if (name_.empty() || resources == nullptr || !resources->is_array()) return true;
    const auto& names = resources->as_array();
    return std::any_of(names.begin(), names.end(),
                       [&](const json::value& n) { return n.is_string() && n.as_string() == name_; });
  }

  std::string name_;
};

class any_url final : public service {
 public:
  explicit any_url(const preemption_config& c) : service(c, ""), url_(c.metadata_url) {}

  answer ask(const http_sender& send, wall_time now) override {
    const auto reply = send({"GET", url_, {}, timeout_});
    if (!reply) return reply.failure();
    if (reply->status == status_not_found || reply->status == status_no_content)
      return std::optional<notice>{};
    if (reply->status != status_ok) return unexpected(url_, reply->status);
    const auto deadline = parse_deadline(reply->body, now);
    return std::optional(notice{deadline && *deadline ? **deadline : grace_, url_ + " answers with 200"});
  }

 private:
  const std::string url_;
};

}  // namespace

std::unique_ptr<metadata_service> make_metadata_service(const preemption_config& c) {
  if (c.metadata == "aws") return std::make_unique<aws>(c);
  if (c.metadata == "gcp") return std::make_unique<gcp>(c);
  if (c.metadata == "azure") return std::make_unique<azure>(c);
  if (c.metadata == "url") return std::make_unique<any_url>(c);
  return nullptr;
}

}  // namespace perdura::worker::node
