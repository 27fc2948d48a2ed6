// `perdura ckpt`: what needs no coordinator, but the store's folder: by its manifests and packs alone.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "actors/base/result.hpp"
#include "coordinator/console/render.hpp"

namespace perdura::console {

struct store_options {
  std::string folder;  // empty: as configured
  std::string checkpoint;
  std::string other;
  std::string kind = "parameters";
  std::string tag;
};

void show_options(CLI::App& app, store_options& options);
void diff_options(CLI::App& app, store_options& options);
void verify_options(CLI::App& app, store_options& options);
void du_options(CLI::App& app, store_options& options);
void tag_options(CLI::App& app, store_options& options);
void untag_options(CLI::App& app, store_options& options);

result<void> run_ckpt_show(const store_options& options, renderer& view);
result<void> run_ckpt_diff(const store_options& options, renderer& view);
// Error corrupt: something is damaged; all of it has been shown.
result<void> run_ckpt_verify(const store_options& options, renderer& view);
result<void> run_ckpt_du(const store_options& options, renderer& view);
result<void> run_ckpt_tag(const store_options& options, renderer& view);
result<void> run_ckpt_untag(const store_options& options, renderer& view);

}  // namespace perdura::console
