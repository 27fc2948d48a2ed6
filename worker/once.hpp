// What perdura-worker does without a cluster. Both print for people, or JSON with --json, and return the
// process's exit code (command.hpp).
#pragma once

namespace perdura::worker {

// `perdura generate`: samples pictures from a checkpoint. argv[0] is "--once".
int run_once(int argc, char** argv);
// The tables of a job's model, for planning. argv[0] is "--describe".
int run_describe(int argc, char** argv);

}  // namespace perdura::worker
