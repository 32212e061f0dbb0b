// megartp completion: scripts for bash, zsh and fish, made by walking the command tree, so that they cannot go stale.
#include <iostream>

#include <fmt/format.h>

#include "cli/cli.h"

namespace megartp::cli {
namespace {

struct Words {
  std::string command;  // "" for the root, "weights synth" for a nested one
  std::string description;
  std::vector<std::string> subcommands;
  std::vector<std::string> options;
};

void collect(const CLI::App& app, const std::string& path, std::vector<Words>& out) {
  Words w{path, app.get_description(), {}, {}};
  for (const CLI::App* sub : app.get_subcommands({})) w.subcommands.push_back(sub->get_name());
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) w.options.push_back("--" + name);
  out.push_back(std::move(w));
  for (const CLI::App* sub : app.get_subcommands({}))
    collect(*sub, path.empty() ? sub->get_name() : path + " " + sub->get_name(), out);
}

std::string join(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  std::string s;
  for (const auto* list : {&a, &b})
    for (const std::string& w : *list) s += (s.empty() ? "" : " ") + w;
  return s;
}

std::string bash_script(const std::vector<Words>& commands) {
  std::string s = "# bash completion of megartp: source <(megartp completion bash)\n_megartp() {\n";
  s += "  local cur=\"${COMP_WORDS[COMP_CWORD]}\" path=\"\" word\n";
  s += "  for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n    case \"$word\" in -*) ;; *) path=\"${path:+$path "
       "}$word\" ;; esac\n  done\n";
  s += "  local words=\"\"\n  case \"$path\" in\n";
  for (size_t i = commands.size(); i-- > 0;) {
    const Words& w = commands[i];
    s += fmt::format("    \"{}\"{}) words=\"{}\" ;;\n", w.command, w.command.empty() ? "" : "*",
                     join(w.subcommands, w.options));
  }
  s += "  esac\n  COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n}\ncomplete -o default -F _megartp megartp\n";
  return s;
}

std::string fish_script(const std::vector<Words>& commands) {
  std::string s = "# fish completion of megartp: megartp completion fish | source\n";
  for (const Words& w : commands) {
    if (w.command.find(' ') != std::string::npos) continue;
    const std::string condition =
        w.command.empty() ? "__fish_use_subcommand" : fmt::format("__fish_seen_subcommand_from {}", w.command);
    for (const std::string& sub : w.subcommands)
      s += fmt::format("complete -c megartp -n '{}' -a {}\n", condition, sub);
    for (const std::string& option : w.options)
      s += fmt::format("complete -c megartp -n '{}' -l {}\n", condition, option.substr(2));
  }
  return s;
}

int run_completion(CLI::App& root, const std::string& shell) {
  std::vector<Words> commands;
  collect(root, "", commands);
  if (shell == "fish") {
    std::cout << fish_script(commands);
  } else if (shell == "zsh") {
    std::cout << "#compdef megartp\nautoload -U +X bashcompinit && bashcompinit\n" << bash_script(commands);
  } else {
    std::cout << bash_script(commands);
  }
  return 0;
}

}  // namespace

Command add_completion_command(CLI::App& root) {
  auto shell = std::make_shared<std::string>();
  CLI::App* app = root.add_subcommand("completion", "Print a shell completion script");
  app->add_option("shell", *shell, "bash, zsh or fish")->required()->check(CLI::IsMember({"bash", "zsh", "fish"}));
  app->footer("Example:\n  source <(megartp completion bash)");
  return {app, [&root, shell] { return run_completion(root, *shell); }};
}

}  // namespace megartp::cli
