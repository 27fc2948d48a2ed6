// `perdura doctor`: what is missing or wrong on this machine, one line each, with what to do about it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "coordinator/console/exit_code.hpp"
#include "coordinator/console/render.hpp"
#include "coordinator/console/settings.hpp"

namespace perdura::console {

enum class health : std::uint8_t { ok, warn, fail };

struct finding {
  std::string check;
  health is = health::ok;
  std::string found;
  std::string advice;  // empty when ok
};

// Each check by itself, so that a test may ask it about a broken machine.
finding check_settings(const result<settings>& read);
finding check_port(const std::string& what, const std::string& host, std::uint16_t port, bool is_admin,
                   const std::string& tls_folder = {});
finding check_folder(const std::string& what, const std::string& folder, std::uint64_t free_bytes_least);
finding check_certificates(const std::string& tls_folder);  // all roles that are there
finding check_data_set(const std::string& folder);
finding check_program(const std::string& name);  // it is found, and runs with --version
finding check_clock();
finding check_open_files();

// exit_failed when any check failed.
exit_code run_doctor(const result<settings>& read, renderer& view);

}  // namespace perdura::console
