"""Makes what the small default judge measures with: clips with known faults, and heads that compare their measures.

footage, packages' clips and the world -> scenes     what is filmed, and how
faults, coding                                       what is wrong with it, from barely visible to gross
specimens -> making                                  clips of a scene, measured one by one; only measures are kept
pairs -> heads -> judging                            labelled pairs, boosted trees, figures on scenes apart
"""
