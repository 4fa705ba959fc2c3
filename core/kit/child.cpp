#include "kit/child.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <sstream>

namespace tessera {
namespace {

constexpr std::size_t kKeptOutput = 16 << 10;

struct Pipe {
  int read = -1, write = -1;

  Pipe() = default;
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() { close_read(), close_write(); }

  bool open() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return false;
    read = ends[0], write = ends[1];
    return fcntl(read, F_SETFL, O_NONBLOCK) == 0;
  }
  void close_read() {
    if (read >= 0) ::close(std::exchange(read, -1));
  }
  void close_write() {
    if (write >= 0) ::close(std::exchange(write, -1));
  }
  /// Appends what is there; closes at the end.
  void drain(std::string& text) {
    std::array<char, 4096> buffer;
    while (read >= 0) {
      const ssize_t count = ::read(read, buffer.data(), buffer.size());
      if (count > 0) text.append(buffer.data(), static_cast<std::size_t>(count));
      if (count == 0) close_read();
      if (count < 0 && errno != EINTR) return;
    }
  }
};

/// Between fork and exec: calls that are safe there and nothing else.
[[noreturn]] void become(char* const* arguments, int report, int output, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);
  setpgid(0, 0);
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  fcntl(report, F_SETFD, 0);  // survives exec
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  execv(arguments[0], arguments);
  _exit(127);
}

void wait_for_news(const Pipe& report, const Pipe& output) {
  std::array<pollfd, 2> ends{pollfd{report.read, POLLIN, 0}, pollfd{output.read, POLLIN, 0}};  // -1 is ignored
  poll(ends.data(), ends.size(), 20);
}

/// Collects until the child has ended; kills it at the deadline.
void follow(pid_t child, Pipe& report, Pipe& output, std::chrono::seconds timeout, ChildResult& result) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  int status = 0;
  while (true) {
    wait_for_news(report, output);
    report.drain(result.report);
    output.drain(result.output);
    if (result.output.size() > 2 * kKeptOutput) result.output.erase(0, result.output.size() - kKeptOutput);
    const pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended == child || (ended < 0 && errno != EINTR)) break;
    if (std::chrono::steady_clock::now() < deadline || result.timed_out) continue;
    result.timed_out = true;
    kill(-child, SIGKILL);
    kill(child, SIGKILL);  // it may not have made its group yet
  }
  kill(-child, SIGKILL);  // what it left behind
  report.drain(result.report);
  output.drain(result.output);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  if (WIFEXITED(status)) result.exit_status = WEXITSTATUS(status);
}

}  // namespace

std::string ChildResult::last_words() const {
  std::istringstream lines(output);
  std::string last;
  for (std::string line; std::getline(lines, line);) {
    const std::size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string::npos) continue;
    last = line.substr(begin);
    if (last.starts_with("SUMMARY:")) break;
  }
  return last.substr(0, 300);
}

Result<ChildResult> run_child(std::vector<std::string> command, std::chrono::seconds timeout) {
  Pipe report, output;
  if (!report.open() || !output.open()) return fail(Code::internal, "cannot make a pipe: {}", std::strerror(errno));
  command.push_back(std::to_string(report.write));
  std::vector<char*> arguments;
  for (std::string& word : command) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const pid_t parent = getpid(), child = fork();
  if (child < 0) return fail(Code::internal, "cannot start a process: {}", std::strerror(errno));
  if (child == 0) become(arguments.data(), report.write, output.write, parent);
  report.close_write();
  output.close_write();
  ChildResult result;
  follow(child, report, output, timeout, result);
  return result;
}

}  // namespace tessera
