// How the search of the site orders pages: Sphinx's weights, with pages for users before those about the inside.
var Scorer = {
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
  score: (result) => {
    const [page, , , , score] = result;
    const inside = /^(design\/|performance\/|changelog|contributing|findings|benchmarks|scoreboard|pipeline|reference\/)/;
    return inside.test(page) ? score - 10 : score;
  },
};
