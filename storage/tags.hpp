// Names that people give to checkpoints; one that has a tag is kept. A tag is an object "tags/<job>/<tag>"
// whose text is the checkpoint's timeline and step.
//   tag:  object -> the checkpoint is still there and not condemned, or the tag is taken back
//   drop: tombstones -> tags are read: who has got one meanwhile is kept (index/retention.cpp)
// so one of the two sees the other.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "actors/base/result.hpp"
#include "storage/layout.hpp"
#include "storage/object_folder.hpp"

namespace perdura::storage {

// Letters, digits, '.', '_' and '-', not starting with '.' nor with a digit, at most 64.
bool is_tag(std::string_view tag);

// Error already_exists: another checkpoint of the job has this tag; not_found: no such checkpoint.
result<void> add_tag(const object_folder& objects, const checkpoint_key& key, const std::string& tag);
// Error not_found.
result<void> remove_tag(const object_folder& objects, const std::string& job, const std::string& tag);
// Of the job; with an empty name, of all jobs. Those that cannot be read are logged and left out.
result<std::map<checkpoint_key, std::vector<std::string>>> list_tags(const object_folder& objects,
                                                                     const std::string& job);

// What people write: JOB (its newest), JOB@STEP (on its newest timeline), JOB@STEP.TIMELINE, JOB:TAG. Error
// not_found says what there is.
result<checkpoint_key> find_checkpoint(const object_folder& objects, const std::string& text);

}  // namespace perdura::storage
