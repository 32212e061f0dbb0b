// megartp: the command-line tool.
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <exception>
#include <iostream>

#include "base/file.h"
#include "cli/cli.h"

namespace megartp::cli {
namespace {

// Set by SIGPIPE: the reader of stdout has left, perhaps writes ago.
volatile std::sig_atomic_t g_pipe_closed = 0;

constexpr const char* kFooter =
    "Examples:\n"
    "  megartp run glm52-attention-pre --check          one full-size layer against the reference\n"
    "  megartp plan glm52-attention-pre --target h200   how the layer is cut for an H200\n"
    "  megartp graph glm52-attention-pre --format dot   the operator graph for Graphviz\n"
    "  megartp weights synth -o w.safetensors           a seeded checkpoint\n"
    "\n"
    "Exit codes: 0 success, 1 a check failed, 2 usage, 3 bad input file, 4 unsupported here,\n"
    "  5 run-time failure, 6 timeout or deadlock, 70 internal error, 130 interrupted.";

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, change});
    }
  }
  return row[b.size()];
}

// "unknown command 'rn'; did you mean 'run'?" for the first argument that is no command.
int unknown_command(const CLI::App& root, std::string_view word) {
  std::string best;
  size_t best_distance = 3;
  for (const CLI::App* sub : root.get_subcommands({})) {
    const size_t d = edit_distance(word, sub->get_name());
    if (d < best_distance) {
      best_distance = d;
      best = sub->get_name();
    }
  }
  std::cerr << "megartp: error: unknown command '" << word << "'"
            << (best.empty() ? "" : "; did you mean '" + best + "'?") << "\nRun 'megartp --help' for the list.\n";
  return 2;
}

int parse_and_run(int argc, char** argv) {
  CLI::App root("Cuts one operator graph into tile tasks and runs the same plan on several backends.", "megartp");
  root.footer(kFooter);
  root.require_subcommand(0, 1);
  root.set_version_flag("--version", std::string("megartp ") + MEGARTP_VERSION);
  const std::vector<Command> commands = add_commands(root);
  if (argc > 1 && argv[1][0] != '-') {
    const std::string_view word = argv[1];
    if (word == "help") {
      std::cout << root.help();
      return 0;
    }
    const auto subs = root.get_subcommands({});
    if (std::none_of(subs.begin(), subs.end(), [&](const CLI::App* s) { return s->get_name() == word; }))
      return unknown_command(root, word);
  }
  try {
    root.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    // CLI11 has exit codes of its own; ours are 0 for help and 2 for every misuse.
    if (e.get_exit_code() == 0) return root.exit(e);
    CommonOptions common;
    common.json = std::any_of(argv + 1, argv + argc, [](const char* a) { return std::string_view(a) == "--json"; });
    return print_error(Error{ErrorCode::kInvalidArgument, std::string(e.what()) + " (--help shows the usage)"}, common,
                       argc > 1 && argv[1][0] != '-' ? argv[1] : "megartp");
  }
  for (const Command& c : commands)
    // `plan diff` parses `plan` too; the inner one is meant.
    if (c.app->parsed() && c.app->get_subcommands().empty()) return c.body();
  std::cout << root.help();
  return argc > 1 ? 2 : 0;
}

// stdout may be a pipe that its reader has closed (`megartp disasm x | head`): that is no error.
int flush_stdout(int code) {
  errno = 0;
  std::cout.flush();
  if (std::cout.good() || g_pipe_closed != 0) return code;
  std::cerr << "megartp: error: cannot write to stdout" << (errno != 0 ? std::string(": ") + std::strerror(errno) : "")
            << "\n";
  return code == 0 ? exit_code(ErrorCode::kIo) : code;
}

}  // namespace
}  // namespace megartp::cli

int main(int argc, char** argv) {
  std::signal(SIGPIPE, [](int) { megartp::cli::g_pipe_closed = 1; });
  // A handler must not touch the heap: remove files in the making, leave with the code that shells expect.
  std::signal(SIGINT, [](int) {
    megartp::unlink_unfinished_files();
    _exit(130);
  });
  namespace cli = megartp::cli;
  using megartp::ErrorCode;
  try {
    return cli::flush_stdout(cli::parse_and_run(argc, argv));
  } catch (const cli::ExitCode& e) {
    return cli::flush_stdout(e.code);
  } catch (const std::bad_alloc&) {
    std::cerr << "megartp: error: out of memory\n";
    return megartp::exit_code(ErrorCode::kOutOfMemory);
  } catch (const std::exception& e) {
    std::cerr << "megartp: internal error: " << e.what() << "\n";
    return megartp::exit_code(ErrorCode::kInternal);
  }
}
