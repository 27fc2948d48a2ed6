// How clouds tell a machine that it will be taken away: one small dialogue each, over any way to send HTTP.
#pragma once

#include <memory>
#include <optional>

#include "actors/base/node_config.hpp"
#include "worker/node/http_client.hpp"
#include "worker/node/notice.hpp"

namespace perdura::worker::node {

class metadata_service {
 public:
  virtual ~metadata_service() = default;
  // A notice, or none so far. Errors: the service is down, or says what nobody understands; neither is a
  // notice. May take as long as its requests' timeouts.
  virtual result<std::optional<notice>> ask(const http_sender& send, wall_time now) = 0;
};

// Of preemption_config::metadata; null for "none".
//   aws    a session token first (IMDSv2), then spot/instance-action: 404 until there is one.
//          docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html
//   gcp    instance/preempted, held open by the service until it changes.
//          cloud.google.com/compute/docs/instances/create-use-preemptible
//   azure  scheduledevents: Preempt or Terminate of this machine, with NotBefore.
//          learn.microsoft.com/azure/virtual-machines/linux/scheduled-events
//   url    status 200 is a notice, its body a deadline or nothing; 204 and 404 are none.
std::unique_ptr<metadata_service> make_metadata_service(const preemption_config& config);

}  // namespace perdura::worker::node
