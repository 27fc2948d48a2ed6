// The answers of the admin protocol as tables and records: which columns, in which unit, under which name in
// JSON.
#pragma once

#include <vector>

#include "coordinator/admin/service.hpp"
#include "coordinator/console/render.hpp"

namespace perdura::console {

record cluster_record(const admin::cluster_status& status);
table nodes_table(const std::vector<admin::node_info>& nodes);
table workers_table(const std::vector<admin::worker_info>& workers);
table jobs_table(const std::vector<admin::job_info>& jobs);
record job_record(const admin::job_info& job);
table plan_table(const admin::plan_info& plan);
table events_table(const std::vector<admin::event_info>& events);
table steps_table(const std::vector<admin::step_info>& steps);
table recoveries_table(const std::vector<admin::recovery_info>& recoveries);
table checkpoints_table(const std::vector<admin::checkpoint_info>& checkpoints);
table tiers_table(const std::vector<admin::tier_info>& tiers);

}  // namespace perdura::console
