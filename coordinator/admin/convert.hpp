// Between the schema's messages and the plain structs of service.hpp: put() writes one, get() reads one.
#pragma once

#include "coordinator/admin/admin.capnp.h"
#include "coordinator/admin/service.hpp"

namespace perdura::admin {

void put(schema::ClusterStatus::Builder to, const cluster_status& from);
void put(schema::Node::Builder to, const node_info& from);
void put(schema::Worker::Builder to, const worker_info& from);
void put(schema::Job::Builder to, const job_info& from);
void put(schema::Plan::Builder to, const plan_info& from);
void put(schema::EventQuery::Builder to, const event_query& from);
void put(schema::EventPage::Builder to, const event_page& from);
void put(schema::Step::Builder to, const step_info& from);
void put(schema::Recovery::Builder to, const recovery_info& from);
void put(schema::Checkpoint::Builder to, const checkpoint_info& from);
void put(schema::Tier::Builder to, const tier_info& from);
void put(schema::Submission::Builder to, const submission& from);
void put(schema::Receipt::Builder to, const receipt& from);
void put(schema::Error::Builder to, const error& from);

cluster_status get(schema::ClusterStatus::Reader from);
node_info get(schema::Node::Reader from);
worker_info get(schema::Worker::Reader from);
job_info get(schema::Job::Reader from);
plan_info get(schema::Plan::Reader from);
event_query get(schema::EventQuery::Reader from);
event_page get(schema::EventPage::Reader from);
step_info get(schema::Step::Reader from);
recovery_info get(schema::Recovery::Reader from);
checkpoint_info get(schema::Checkpoint::Reader from);
tier_info get(schema::Tier::Reader from);
submission get(schema::Submission::Reader from);
receipt get(schema::Receipt::Reader from);
error get(schema::Error::Reader from);

std::string get(capnp::Text::Reader from);

// A result of a struct or a list of structs, as Reply(T).
template <class Reply, class T>
void put_reply(Reply to, const result<T>& from) {
  if (from)
    put(to.initValue(), *from);
  else
    put(to.initError(), from.failure());
}

template <class Reply, class T>
void put_reply(Reply to, const result<std::vector<T>>& from) {
  if (!from) return put(to.initError(), from.failure());
  auto list = to.initValue(static_cast<unsigned>(from->size()));
  for (unsigned i = 0; i < list.size(); ++i) put(list[i], (*from)[i]);
}

template <class T, class Reply>
result<T> get_reply(const Reply& from) {
  if (from.isError()) return get(from.getError());
  return get(from.getValue());
}

template <class T, class Reply>
result<std::vector<T>> get_list_reply(const Reply& from) {
  if (from.isError()) return get(from.getError());
  std::vector<T> list;
  for (auto item : from.getValue()) list.push_back(get(item));
  return list;
}

}  // namespace perdura::admin
