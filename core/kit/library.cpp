// The file itself: what it exports, what it drags in, and whether the engine will take it.
#include <algorithm>
#include <cctype>

#include "kit/case.h"
#include "kit/elf.h"

namespace tessera {
namespace {

Finding is_a_library(const Subject& subject) {
  auto elf = read_elf(subject.file);
  return elf.ok() ? passed("64-bit ELF") : failed(elf.status());
}

Finding exports_one_symbol(const Subject& subject) {
  auto elf = read_elf(subject.file);
  if (!elf.ok()) return failed(elf.status());
  auto& names = elf->exported;
  const auto ours = std::find(names.begin(), names.end(), TESSERA_PLUGIN_SYMBOL);
  if (ours == names.end())
    return failed("exports no {}{}; wanted TESSERA_REGISTER_PLUGIN in one source file", TESSERA_PLUGIN_SYMBOL,
                  names.empty() ? "" : fmt::format(", but {}", names.front()));
  names.erase(ours);
  if (!names.empty())
    return failed("exports {} symbols besides {}, as {}; build it with tessera_add_plugin()", names.size(),
                  TESSERA_PLUGIN_SYMBOL, names.front());
  return passed("{}", TESSERA_PLUGIN_SYMBOL);
}

/// A relative search path lets whoever chooses the working directory choose the code; so does a writable stack.
Finding has_no_surprises(const Subject& subject) {
  auto elf = read_elf(subject.file);
  if (!elf.ok()) return failed(elf.status());
  for (const std::string& path : elf->search_paths)
    if (!path.starts_with("/") && !path.starts_with("$ORIGIN"))
      return failed("looks for its libraries in '{}', relative to the working directory; wanted absolute or $ORIGIN",
                    path);
  if (elf->executable_stack) return failed("asks for an executable stack; link it with -z noexecstack");
  return passed("{} search paths", elf->search_paths.size());
}

bool is_name(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::islower(c) != 0 || std::isdigit(c) != 0 || c == '_';
  });
}

/// Fields that Registry::open has no use for, and others may.
Finding check_fields(const sdk::Descriptor& d) {
  constexpr std::uint64_t kKnown =
      sdk::kBatchInvariant | sdk::kChunkInvariant | sdk::kPortableBits | sdk::kGraphCapturable | sdk::kEmitsScores;
  if (!is_name(d.name)) return failed("is called '{}'; wanted lower-case letters, digits and _", d.name);
  if (d.version == nullptr || d.version[0] == '\0') return failed("has no version");
  if (sdk::device_name(d.device) == std::string_view("unknown"))
    return failed("is for device number {}, which this SDK does not know", static_cast<std::uint32_t>(d.device));
  if (sdk::kind_name(d.kind) == std::string_view("unknown"))
    return failed("is of kind number {}, which this SDK does not know", static_cast<std::uint32_t>(d.kind));
  if ((d.traits.capabilities & ~kKnown) != 0)
    return failed("claims capability bits {:#x}, which this SDK does not know", d.traits.capabilities & ~kKnown);
  if (d.traits.gpu_architectures == nullptr) return failed("its gpu_architectures is null; wanted \"\" for none");
  if (d.create == nullptr || d.destroy == nullptr) return failed("has no create or no destroy");
  if (d.kind == sdk::Kind::attention && d.traits.kv_types == 0)
    return failed("claims no KV element type; wanted a bit (1 << DType) for each it serves");
  return {};
}

/// Where the YAML looks for plugins, the folder's name is their kind.
Finding check_folder(const Subject& subject, const sdk::Descriptor& d) {
  const std::string folder = std::filesystem::absolute(subject.file).parent_path().filename().string();
  for (const sdk::Kind kind : {sdk::Kind::backend, sdk::Kind::attention, sdk::Kind::sparse_decode, sdk::Kind::protocol})
    if (folder == sdk::kind_name(kind) && kind != d.kind)
      return failed("is of kind {} in a folder for kind {}; move it or register the other interface",
                    sdk::kind_name(d.kind), folder);
  return {};
}

Finding loads(const Subject& subject) {
  subject.doing("being loaded");
  auto opened = Registry::open(subject.file);
  if (!opened.ok()) return failed(opened.status());
  const sdk::Descriptor& d = **opened;
  if (Finding finding = check_fields(d); finding.verdict != Verdict::passed) return finding;
  if (Finding finding = check_folder(subject, d); finding.verdict != Verdict::passed) return finding;
  Finding finding = passed("{} {} for SDK {}.{}", d.name, d.version, d.sdk_major, d.sdk_minor);
  finding.facts =
      PluginFacts{sdk::kind_name(d.kind), d.name, d.version, sdk::device_name(d.device), d.traits.capabilities};
  return finding;
}

constexpr KitCase kCases[] = {
    {"library-is-elf", "it is a shared library for this machine", "", is_a_library},
    {"library-exports-one-symbol", "nothing of it can collide with another plugin", "library-is-elf",
     exports_one_symbol},
    {"library-has-no-surprises", "no relative search path, no executable stack", "library-is-elf", has_no_surprises},
    {"library-loads", "SDK version, build, name, device and kind are what its place and this engine want",
     "library-is-elf", loads},
};

}  // namespace

std::span<const KitCase> library_cases() { return kCases; }

}  // namespace tessera
