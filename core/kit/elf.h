// What can be read of a shared library without loading it.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "base/status.h"

namespace tessera {

struct ElfFacts {
  std::vector<std::string> exported;      // dynamic symbols that it defines and others can see
  std::vector<std::string> search_paths;  // entries of DT_RPATH and DT_RUNPATH
  bool executable_stack = false;
};

/// Trusts nothing in the file. One sentence says why it is no 64-bit little-endian shared library.
Result<ElfFacts> read_elf(const std::filesystem::path& path);

}  // namespace tessera
