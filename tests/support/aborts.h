// For what must end the process.
#pragma once
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

namespace tessera {

/// Whether `body` aborts, tried in a child process.
template <class Body>
bool aborts(Body body) {
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGABRT, SIG_DFL);  // not the test runner's report
    const bool quiet = std::freopen("/dev/null", "w", stderr) != nullptr;
    if (!quiet) _exit(1);
    body();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

}  // namespace tessera
