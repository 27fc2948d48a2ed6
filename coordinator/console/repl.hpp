// The interactive console: the commands of commands.hpp at a prompt, with history and completion.
#pragma once

#include <string>
#include <vector>

#include "coordinator/console/session.hpp"

namespace perdura::console {

// Until end of file, `quit` or `exit`. Reads standard input; without a terminal there is no prompt, and the
// exit code is that of the last command that failed.
int run_console(session& to, bool colour);

// What may stand after `before` (the words of the line so far): commands, job ids, names of nodes and
// workers. Empty where a file name is expected.
std::vector<std::string> completions(session& to, const std::vector<std::string>& before);

}  // namespace perdura::console
