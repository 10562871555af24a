#include "reliability/explain.h"

#include <fmt/format.h>

#include <algorithm>

#include "reliability/solver.h"
#include "text/words.h"

namespace eplog::reliability {
namespace {

std::string Left(const std::vector<std::vector<std::string>>& rows) {
  return Columns(rows, [](size_t) { return true; });
}

std::string TermText(const Term& term, const Chain& chain) {
  // "n-1" needs brackets beside a symbol.
  std::string text = term.count_text.find('-') == std::string::npos ? term.count_text
                                                                    : "(" + term.count_text + ")";
  bool first = true;
  for (const size_t symbol : term.symbols) {
    const bool close = first && text.find('/') == std::string::npos;  // "nλs", but "1/2 μs"
    text += (close || text.empty() ? "" : " ") + chain.symbols[symbol].name;
    first = false;
  }
  return text;
}

std::string Number(double value) {
  return fmt::format("{:.6g}", value);
}

std::string Count(uint32_t count, const char* noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

double Leaving(const Chain& chain, size_t state) {
  double sum = 0;
  for (const Transition& transition : chain.transitions) {
    sum += transition.from == state ? transition.rate : 0;
  }
  return sum;
}

std::string SymbolsText(const Chain& chain) {
  std::vector<std::vector<std::string>> rows;
  rows.push_back({"n", "=", std::to_string(chain.parameters.ssds), "", "SSDs in the main array"});
  rows.push_back({"m", "=", std::to_string(chain.parameters.parity), "",
                  chain.system == System::kEplog ? "parity chunks a stripe, and log devices"
                                                 : "parity chunks a stripe"});
  for (const Symbol& symbol : chain.symbols) {
    rows.push_back({symbol.name, "=", Number(symbol.value), symbol.unit, symbol.meaning});
  }
  return Left(rows);
}

std::string StatesText(const Chain& chain) {
  const std::vector<double> years = YearsInStates(chain);
  double all = 0;
  for (const double y : years) {
    all += y;
  }
  std::vector<std::vector<std::string>> rows;
  for (size_t i = 0; i < chain.states.size(); ++i) {
    rows.push_back({StateName(chain, i), StateWords(chain, i),
                    chain.states[i].loss ? std::string()
                                         : fmt::format("{:.3g} % of the time before the loss",
                                                       100 * years[i] / all)});
  }
  return Left(rows);
}

std::string TransitionsText(const Chain& chain) {
  std::vector<std::vector<std::string>> rows;
  for (const Transition& transition : chain.transitions) {
    rows.push_back({fmt::format("S{} -> S{}", transition.from, transition.to),
                    RateText(transition, chain), "= " + Number(transition.rate) + " a year"});
  }
  return Left(rows);
}

std::string MatrixText(const Chain& chain, bool values) {
  auto cells = GeneratorSymbols(chain);
  if (values) {
    for (size_t i = 0; i < cells.size(); ++i) {
      std::fill(cells[i].begin(), cells[i].end(), "0");
      const double leaving = Leaving(chain, i);
      cells[i][i] = leaving > 0 ? "-" + Number(leaving) : "0";
    }
    for (const Transition& transition : chain.transitions) {
      cells[transition.from][transition.to] = Number(transition.rate);
    }
  }
  for (size_t i = 0; i < cells.size(); ++i) {
    cells[i].insert(cells[i].begin(), fmt::format("S{} [", i));
    cells[i].emplace_back("]");
  }
  return Columns(cells, [](size_t) { return false; });
}

// Failures go red, repairs green; names of nodes begin with a letter for each chain.
std::string DotOf(const Chain& chain, size_t number) {
  const std::string node = std::string(1, static_cast<char>('A' + number)) + "_S";
  std::string out = fmt::format(
      "  subgraph cluster_{0} {{\n    label=\"{1}: {2} SSDs, {3} parity; rates a year\";\n"
      "    color=\"#bbbbbb\";\n",
      number, SystemName(chain.system), chain.parameters.ssds, chain.parameters.parity);
  for (size_t i = 0; i < chain.states.size(); ++i) {
    out += fmt::format("    {}{} [label=\"{}\\n{}\"{}];\n", node, i, StateName(chain, i),
                       StateWords(chain, i),
                       chain.states[i].loss ? ", fillcolor=\"#f8d7d3\", peripheries=2" : "");
  }
  for (const Transition& transition : chain.transitions) {
    const char* colour = transition.to < transition.from ? "#2f7d4f" : "#b03a2e";
    out += fmt::format(
        "    {0}{1} -> {0}{2} [label=\" {3}\\n{4} \", color=\"{5}\", fontcolor=\"{5}\"];\n", node,
        transition.from, transition.to, RateText(transition, chain), Number(transition.rate),
        colour);
  }
  return out + "  }\n";
}

}  // namespace

std::string SystemName(System system) {
  return system == System::kEplog ? "EPLOG" : "conventional RAID";
}

std::string RateText(const Transition& transition, const Chain& chain) {
  std::string text;
  for (const Term& term : transition.terms) {
    text += (text.empty() ? "" : " + ") + TermText(term, chain);
  }
  return text;
}

std::string StateName(const Chain& chain, size_t state) {
  const State& s = chain.states[state];
  if (s.loss) {
    // With the window of pending chunks an array may live on with more devices down.
    const State& last = chain.states[chain.loss() - 1];
    return last.ssds_down + last.logs_down > chain.parameters.parity
               ? fmt::format("S{} (loss)", state)
               : fmt::format("S{} ({},*)", state, chain.parameters.parity + 1);
  }
  return fmt::format("S{} ({},{})", state, s.ssds_down + s.logs_down, s.ssds_down);
}

std::string StateWords(const Chain& chain, size_t state) {
  const State& s = chain.states[state];
  if (s.loss) {
    return "data is lost";
  }
  if (s.ssds_down + s.logs_down == 0) {
    return "all devices are well";
  }
  const std::string ssds = s.ssds_down == 0 ? "" : Count(s.ssds_down, "SSD");
  const std::string logs = s.logs_down == 0 ? "" : Count(s.logs_down, "log device");
  return ssds + (ssds.empty() || logs.empty() ? "" : ", ") + logs + " down";
}

std::vector<std::vector<std::string>> GeneratorSymbols(const Chain& chain) {
  const size_t size = chain.states.size();
  std::vector<std::vector<std::string>> cells(size, std::vector<std::string>(size, "0"));
  std::vector<std::string> sums(size);
  std::vector<int> terms(size, 0);
  for (const Transition& transition : chain.transitions) {
    const std::string rate = RateText(transition, chain);
    cells[transition.from][transition.to] = rate;
    std::string& sum = sums[transition.from];
    sum += (sum.empty() ? "" : " + ") + rate;
    terms[transition.from] += static_cast<int>(transition.terms.size());
  }
  for (size_t i = 0; i < size; ++i) {
    if (terms[i] > 0) {
      cells[i][i] = terms[i] == 1 ? "-" + sums[i] : "-(" + sums[i] + ")";
    }
  }
  return cells;
}

std::string ExplainText(const Chain& chain) {
  std::string out = fmt::format("{}: {} states. (i,j): i devices are down, j of them SSDs.\n\n",
                                SystemName(chain.system), chain.states.size());
  out += "Symbols\n" + SymbolsText(chain);
  out += "\nStates\n" + StatesText(chain);
  out += "\nTransitions\n" + TransitionsText(chain);
  out += "\nGenerator Q in symbols\n" + MatrixText(chain, false);
  out += "\nGenerator Q, a year\n" + MatrixText(chain, true);
  return out;
}

std::string ExplainDot(std::span<const Chain> chains) {
  std::string out =
      "digraph reliability {\n  rankdir=LR;\n  nodesep=0.5;\n  ranksep=1.4;\n"
      "  fontname=\"DejaVu Sans\";\n"
      "  node [shape=box, style=\"rounded,filled\", fillcolor=\"#eef3fa\", "
      "fontname=\"DejaVu Sans\"];\n"
      "  edge [fontname=\"DejaVu Sans\", fontsize=11];\n";
  for (size_t i = 0; i < chains.size(); ++i) {
    out += DotOf(chains[i], i);
  }
  return out + "}\n";
}

}  // namespace eplog::reliability
