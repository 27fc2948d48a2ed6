#include "coordinator/console/program.hpp"

int main(int count, char** words) { return perdura::console::run_program({words + 1, words + count}); }
