#include "app/common.h"
#include "base/log.h"

int main(int argc, char** argv) {
  using namespace tessera;
  CLI::App root{"Tessera: an LLM inference engine whose answers never change with load"};
  root.set_version_flag("--version", "tessera " TESSERA_VERSION);
  root.require_subcommand(1);
  root.fallthrough(false);
  int exit_code = 0;
  set_log_level(LogLevel::warn);
  app::add_serve(root, exit_code);
  app::add_run(root, exit_code);
  app::add_plugins(root, exit_code);
  app::add_config(root, exit_code);
  app::add_inspect(root, exit_code);
  app::add_tokenize(root, exit_code);
  app::add_logits(root, exit_code);
  app::add_eval(root, exit_code);
  app::add_check(root, exit_code);
  app::add_bench(root, exit_code);
  CLI11_PARSE(root, argc, argv);
  return exit_code;
}
