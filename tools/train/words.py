"""Vocabulary of the tiny world. Standard library only; the order of every list is part of the generator's seed."""

GIRLS = """
Mia Lily Anna Sara Ella Nora Lucy Ruby Zoe Ivy Clara Rosa Emma Ada Tara Nina Maya Kate Jane Ida Vera Elsa June Gina
Olga Alma Tess Lena Iris Hope Dora Bella Amy Fay Hazel Jill Lola Nell Pam Rita Uma Wendy Abby Cora Edna Greta Holly
Judy Kira Mona Opal Rhea Tina Willa Yara Molly Daisy Penny Alice Grace
""".split()
BOYS = """
Tom Ben Max Leo Sam Jack Finn Oscar Hugo Theo Felix Jonas Noah Milo Owen Eli Paul Luke Mark Otto Carl Hank Pete Ron
Dan Ned Gus Roy Ray Joe Kim Cole Drew Glen Ian Kurt Moe Quinn Seth Vic Zack Bruno Dean Frank Igor Liam Nick Percy
Simon Victor Zane Adam Peter Henry Toby Jasper Barney Rufus Arlo Wes
""".split()
NAMES = GIRLS + BOYS
SHE = set(GIRLS)
ANIMALS = """
fox bear rabbit owl cat dog frog duck mouse deer wolf horse cow pig goat sheep hen crow bee ant snail turtle
squirrel hedgehog beaver badger otter seal whale crab lion tiger monkey elephant zebra camel panda koala parrot swan
goose robin sparrow donkey pony lizard snake spider butterfly moth bat mole penguin dolphin kitten puppy lamb calf
toad hamster
""".split()
OBJECTS = """
ball kite box key lamp book drum bell coin cup hat coat scarf rope basket spoon bowl clock doll boat ring map flute
candle mirror pen brush bag bottle blanket pillow chair ladder hammer bucket shovel wheel wagon sled whistle lantern
button ribbon feather shell stone jar plate fork pan comb broom umbrella glove boot sock belt cap mask flag puzzle
pencil crayon marble robot train truck car plane balloon guitar violin trumpet radio telescope magnet compass
necklace crown letter card stamp ticket photo painting vase chest needle net tent torch kettle tray teapot towel
sponge cushion bracelet helmet backpack notebook lunchbox pot rug stool desk shelf
""".split()
CARRY = [o for o in OBJECTS if o not in ("chair", "ladder", "wheel", "chest", "tent", "rug", "stool", "desk", "shelf")]
FOODS = """
apples pears plums cherries peaches grapes lemons oranges bananas berries melons carrots beans peas potatoes
tomatoes onions pumpkins nuts cakes pies cookies cheese eggs honey jam milk butter rice pasta salad muffins pancakes
sandwiches biscuits candy waffles tarts soup bread corn figs dates radishes noodles dumplings mushrooms olives
walnuts chestnuts
""".split()
COLORS = """
red blue green yellow purple orange pink brown black white gray gold silver violet crimson turquoise ivory amber
teal tan
""".split()
PLACES = [
    "in the garden",
    "in the forest",
    "at the beach",
    "by the river",
    "on the hill",
    "in the attic",
    "in the kitchen",
    "in the barn",
    "at the market",
    "in the village",
    "by the lake",
    "in the cave",
    "at the school",
    "in the library",
    "in the park",
    "at the castle",
    "in the tower",
    "in the cellar",
    "in the meadow",
    "on the roof",
    "under the bridge",
    "by the pond",
    "at the farm",
    "in the shed",
    "in the museum",
    "at the station",
    "at the harbor",
    "in the bakery",
    "on the island",
    "in the valley",
    "in the tree house",
    "in the hall",
    "in the bedroom",
    "in the garage",
    "in the orchard",
    "by the well",
    "by the fountain",
    "in the field",
    "at the mill",
    "in the desert",
    "in the jungle",
    "at the zoo",
    "in the theater",
    "in the workshop",
    "on the porch",
    "in the yard",
    "by the fence",
    "at the hotel",
    "in the office",
    "in the hospital",
    "at the bank",
    "in the tunnel",
    "on the mountain",
    "in the swamp",
    "at the playground",
    "in the greenhouse",
    "in the stable",
    "on the balcony",
    "at the camp",
    "in the church",
]
TO = {p: "to " + p.split(" ", 1)[1] for p in PLACES}
SPOTS = [
    "under a bench",
    "behind a tree",
    "inside a hollow log",
    "under a big leaf",
    "behind a rock",
    "in a pile of leaves",
    "under the stairs",
    "behind a curtain",
    "in a muddy puddle",
    "between two stones",
    "under an old chair",
    "inside a drawer",
    "behind a bush",
    "in the tall grass",
    "under a rug",
    "on a low branch",
    "inside a bird nest",
    "next to a fence",
    "under a stack of hay",
    "behind the door",
]
KINDADJ = """
brave kind shy clever gentle curious lazy proud quiet cheerful grumpy clumsy patient honest playful sleepy silly
busy polite lonely lucky tiny young little small old wise friendly careful bold merry stubborn calm nosy graceful
""".split()
OBJADJ = """
shiny old new small big pretty heavy light soft wooden broken lovely strange special round dusty bright tiny smooth
magic
""".split()
FEELGOOD = "happy glad proud excited cheerful thankful delighted joyful relieved pleased".split()
FEELBAD = "sad worried scared lonely upset nervous unhappy afraid gloomy troubled".split()
JOBS = """
baker farmer teacher doctor sailor painter gardener pilot nurse cook singer dancer writer driver tailor miner hunter
fisher builder clerk judge lawyer guard potter weaver barber butcher florist plumber carpenter
""".split()
WEATHER = "sunny rainy windy cold warm snowy foggy cloudy bright quiet stormy misty frosty hot mild".split()
TIMES = "morning afternoon evening day night".split()
SEASON = "spring summer autumn winter".split()
PLANTS = """
sunflower rose tulip daisy pumpkin bean apple cherry oak pine lily poppy berry melon carrot
""".split()
BUILD = [
    "a bridge",
    "a house",
    "a tower",
    "a raft",
    "a nest",
    "a fence",
    "a swing",
    "a cart",
    "a tree house",
    "a sandcastle",
    "a dam",
    "a shed",
    "a slide",
    "a bench",
]
MATS = "wood stones sticks mud bricks leaves rope sand straw clay planks branches".split()
FEARS = [
    "the dark",
    "thunder",
    "deep water",
    "high places",
    "big dogs",
    "loud noises",
    "the wind",
    "shadows",
    "the old house",
    "spiders",
    "strangers",
    "snow storms",
]
STUCK = [
    "in a deep hole",
    "in a net",
    "in the mud",
    "in a thorny bush",
    "between two rocks",
    "under a fallen branch",
    "on a thin ledge",
    "in a hollow tree",
    "in a box",
    "behind a heavy door",
]
TOOLS = [
    "a long rope",
    "a ladder",
    "a strong stick",
    "a shovel",
    "a wooden plank",
    "a small knife",
    "a blanket",
    "a bucket",
    "a fishing net",
    "a hook",
]
FIXERS = [
    "glue",
    "tape",
    "string",
    "a needle and thread",
    "a nail",
    "a bit of wire",
    "some paint",
    "a new wheel",
    "wax",
    "a ribbon",
]
DISHES = [
    "a soup",
    "a cake",
    "a pie",
    "a salad",
    "a stew",
    "some bread",
    "some pancakes",
    "some cookies",
    "a pudding",
    "some jam",
]
INGR = """
sugar flour milk eggs butter salt honey carrots apples onions beans berries nuts cheese lemons potatoes
""".split()
MORAL = [
    "Sharing makes every day better.",
    "It is good to help a friend.",
    "Telling the truth is always best.",
    "A small act of kindness can change a day.",
    "Good friends never give up.",
    "Being brave does not mean having no fear.",
    "Patience brings good things.",
    "Working together makes hard work easy.",
    "It is never too late to say sorry.",
    "Everyone is good at something.",
]
OPP = [
    ("big", "small"),
    ("hot", "cold"),
    ("up", "down"),
    ("day", "night"),
    ("happy", "sad"),
    ("fast", "slow"),
    ("wet", "dry"),
    ("open", "closed"),
    ("light", "dark"),
    ("old", "young"),
    ("hard", "soft"),
    ("full", "empty"),
    ("high", "low"),
    ("near", "far"),
    ("loud", "quiet"),
    ("clean", "dirty"),
    ("early", "late"),
    ("strong", "weak"),
    ("rich", "poor"),
    ("brave", "afraid"),
    ("left", "right"),
    ("front", "back"),
    ("in", "out"),
    ("first", "last"),
    ("long", "short"),
    ("thick", "thin"),
    ("sweet", "sour"),
    ("true", "false"),
    ("win", "lose"),
    ("push", "pull"),
]
SOUND = [
    ("dog", "barks"),
    ("cat", "meows"),
    ("cow", "moos"),
    ("duck", "quacks"),
    ("sheep", "bleats"),
    ("lion", "roars"),
    ("bee", "buzzes"),
    ("owl", "hoots"),
    ("horse", "neighs"),
    ("pig", "grunts"),
    ("snake", "hisses"),
    ("frog", "croaks"),
    ("wolf", "howls"),
    ("hen", "clucks"),
    ("mouse", "squeaks"),
    ("crow", "caws"),
]
THINGCOL = [
    ("grass", "green"),
    ("the sky", "blue"),
    ("snow", "white"),
    ("a lemon", "yellow"),
    ("coal", "black"),
    ("a carrot", "orange"),
    ("a plum", "purple"),
    ("a tomato", "red"),
    ("chocolate", "brown"),
    ("a flamingo", "pink"),
    ("milk", "white"),
    ("the sun", "yellow"),
]
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = "January February March April May June July August September October November December".split()
NUMW = """
zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
eighteen nineteen twenty
""".split()

# list words; needle keys and values
LISTW = sorted(set(ANIMALS + OBJECTS + [f for f in FOODS]))
KEYW = sorted(
    set(ANIMALS + OBJECTS + FOODS + COLORS + JOBS + [k for k in KINDADJ] + MATS + PLANTS + FEELBAD + FEELGOOD)
)
SYSTEMS = [
    "You are a helpful assistant.",
    "You are a friendly storyteller.",
    "Answer briefly.",
    "You are a kind teacher who answers questions.",
    "You are a small model that lives inside a computer.",
    "Be polite and exact.",
    "You answer questions about stories and lists.",
    "You are a careful assistant. Use only the given facts.",
    "Keep your answers short and clear.",
    "You are a patient helper for children.",
]
